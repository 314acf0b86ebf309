// Reads a trace (cuda/emulator/record.hpp) and replays it: every event with the values of its lanes.

// Expands "a b*3" to a, b, b, b.
const expand = (words) => {
  const all = [];
  for (const word of words) {
    const [value, times] = word.split("*");
    for (let i = times ? +times : 1; i > 0; --i) all.push(+value);
  }
  return all;
};

const lanesOf = (mask) => [...Array(32).keys()].filter((lane) => (mask >>> lane) & 1);

// An event: kind, site, lanes, at (byte offsets, or source lanes), bytes, values (a list per lane).
const readEvent = (line) => {
  const [, kind, site, mask, rest] = line.match(/^(\w)(\d+)(?:\/([0-9a-f]+))?(?: (.*))?$/);
  const event = {kind, site: +site, lanes: lanesOf(mask ? parseInt(mask, 16) : 0xffffffff), at: [], values: []};
  const words = rest ? rest.split(" ") : [];
  if (kind === "x" || kind === "v") event.name = words.shift();
  if ("rwRWx".includes(kind)) {
    const [first, ...steps] = words.shift().split(",");
    if (first[0] === "^") for (const lane of event.lanes) event.at[lane] = lane ^ +first.slice(1);
    else {
      let at = +first;
      [0, ...expand(steps)].forEach((step, i) => (event.at[event.lanes[i]] = at += step));
    }
  }
  event.isAccess = "rwRW".includes(kind);
  event.isShared = kind === "R" || kind === "W";
  event.writes = kind === "w" || kind === "W";
  if (event.isAccess) event.bytes = +words.shift();
  if (words[0] === "!") {
    event.isRace = true;
    words.shift();
  }
  if (words[0] === "+") event.isSum = true;
  else if (words[0]?.[0] === "=") event.back = +words[0].slice(1);
  else if (words.length) {
    const values = expand(words), each = values.length / event.lanes.length;
    event.lanes.forEach((lane, i) => (event.values[lane] = values.slice(i * each, (i + 1) * each)));
  }
  return event;
};

const sizes = {f4: 4, i4: 4, bf: 2, f8: 8};

const readTrace = (text) => {
  const trace = {arrays: [], sites: [], launches: [], sharedSize: 4};
  let block, warp;
  for (const line of text.split("\n")) {
    const words = line.split(" ");
    if (words[0] === "array") {
      const [names, values] = line.split(" : ");
      const [, name, type, first, ...shape] = names.split(" ");
      const array = {name, type, size: sizes[type], first: +first, shape: shape.map(Number)};
      array.count = array.shape.reduce((a, b) => a * b, array.shape.length ? 1 : 0);
      array.before = values ? expand(values.split(" ")) : [];
      array.end = array.count ? array.first + array.count * array.size : Infinity;
      trace.arrays.push(array);
    } else if (words[0] === "site") {
      trace.sites.push(line.slice(5).split(">").map((one) => [one.split(":")[0], +one.split(":")[1]]));
    } else if (words[0] === "shared-type") trace.sharedSize = sizes[words[1]];
    else if (words[0] === "launch") trace.launches.push({name: words[1], blocks: []});
    else if (words[0] === "block") {
      const grid = words.slice(5, 8).map((one) => parseInt(one)), threads = +words[8];
      block = {at: words.slice(1, 4).map(Number), grid, threads, warps: [], order: [], shared: []};
      for (let w = 0; w < threads / 32; ++w) block.warps.push([]);
      trace.launches.at(-1).blocks.push(block);
    } else if (words[0] === "shared") block.shared.push({name: words[1], first: +words[2], bytes: +words[3]});
    else if (words[0] === "warp") warp = +words[1];
    else if (words[0] === "fault") trace.fault = line.slice(6);
    else if (/^\w\d/.test(line)) {
      const event = readEvent(line);
      event.warp = warp;
      event.index = block.warps[warp].push(event) - 1;
      event.number = block.order.push(event) - 1;
    }
  }
  replay(trace);
  return trace;
};

const arrayAt = (trace, at) => trace.arrays.findLast((array) => at >= array.first && at < array.end);

// Indices of a lane's access: in the event's array, or in shared memory.
const elementsOf = (event, lane) => {
  const first = event.first[lane], elements = [];
  for (let i = 0; i < event.count; ++i) elements.push(first + i);
  return elements;
};
const place = (trace, event) => {
  event.array = event.isShared ? null : arrayAt(trace, event.at[event.lanes[0]]);
  const size = event.array ? event.array.size : trace.sharedSize, begin = event.array ? event.array.first : 0;
  event.count = Math.max(1, event.bytes / size);
  event.first = event.at.map((at) => (at - begin) / size);
};

// Derives the values of reads from earlier writes.
const replay = (trace) => {
  const memory = new Map(trace.arrays.map((array) => [array, array.before.slice()]));
  for (const launch of trace.launches)
    for (const block of launch.blocks) {
      const shared = [], reads = block.warps.map(() => []), exchanges = [];
      for (const event of block.order) {
        if (event.kind === "x") {
          const before = exchanges[event.warp];
          if (event.isSum)
            for (const lane of event.lanes)
              event.values[lane] = before.values[lane].map((gave, i) => gave + before.values[before.at[lane]][i]);
          exchanges[event.warp] = event;
        }
        if (!event.isAccess) continue;
        place(trace, event);
        const numbers = event.isShared ? shared : memory.get(event.array);
        for (const lane of event.lanes) {
          const elements = elementsOf(event, lane);
          if (event.back) event.values[lane] = reads[event.warp].at(-event.back).values[lane];
          if (event.writes) elements.forEach((at, i) => (numbers[at] = event.values[lane][i]));
          else event.values[lane] ??= elements.map((at) => numbers[at] ?? NaN);
        }
        if (!event.writes) reads[event.warp].push(event);
      }
    }
};

// ---- The cost of a request, by the rules of cuda/emulator/requests.hpp

const piecesOf = (event, piece, lanes) => {
  const found = new Set();
  for (const lane of lanes)
    for (let p = Math.floor(event.at[lane] / piece); p <= Math.floor((event.at[lane] + event.bytes - 1) / piece); ++p)
      found.add(p);
  return found;
};
const sectorsOf = (event) => piecesOf(event, 32, event.lanes);
const askedOf = (event) => event.lanes.length * event.bytes;
// Phases of a shared-memory request: their lanes, and the words of each bank in the order of passes.
const phasesOf = (event) => {
  const each = event.bytes <= 4 ? 32 : 128 / event.bytes, phases = [];
  for (let first = 0; first < 32; first += each) {
    const lanes = event.lanes.filter((lane) => lane >= first && lane < first + each);
    if (!lanes.length) continue;
    const banks = Array.from({length: 32}, () => []);
    for (const word of [...piecesOf(event, 4, lanes)].sort((a, b) => a - b)) banks[word % 32].push(word);
    phases.push({lanes, banks, passes: Math.max(...banks.map((words) => words.length))});
  }
  return phases;
};
const conflictsOf = (event) => (event.conflicts ??= phasesOf(event).reduce((sum, phase) => sum + phase.passes - 1, 0));

// The first steps at which a warp reads and writes each number of an array.
const touchesOf = (block, warp, array) => {
  block.touches ??= new Map();
  const key = `${warp} ${array.name}`;
  if (!block.touches.has(key)) {
    const [read, written] = [0, 1].map(() => new Float64Array(array.count).fill(Infinity));
    for (const event of block.warps[warp]) {
      if (!event.isAccess || event.array !== array) continue;
      const to = event.writes ? written : read;
      for (const lane of event.lanes)
        for (let i = 0; i < event.count; ++i) to[event.first[lane] + i] = Math.min(to[event.first[lane] + i], event.index);
    }
    block.touches.set(key, {read, written});
  }
  return block.touches.get(key);
};

// ---- Origin of a written number: earlier reads of its lane, of lanes from which it got numbers by shuffles, and of
// lanes that wrote the numbers it read. Registers are not recorded, so unused reads are included.
const originsOf = (block, written, lane) => {
  const known = block.warps.map(() => Array.from({length: 32}, () => new Set()));
  const stored = new Map();
  const join = (to, from) => from?.forEach((one) => to.add(one));
  for (const event of block.order) {
    const mine = known[event.warp];
    if (event.kind === "x") {
      const before = mine.map((set) => new Set(set));
      for (const one of event.lanes) join(mine[one], before[event.at[one]]);
    }
    if (event.kind === "m") {
      const all = new Set(mine.flatMap((set) => [...set]));
      for (const one of event.lanes) join(mine[one], all);
    }
    if (!event.isAccess) continue;
    for (const one of event.lanes) {
      for (const at of elementsOf(event, one)) {
        const name = `${event.array ? event.array.name : ""} ${at}`;
        if (event.writes) stored.set(name, new Set(mine[one]));
        else if (stored.has(name)) join(mine[one], stored.get(name));
        else if (event.array) mine[one].add(name);
      }
    }
    if (event === written) return mine[lane];
  }
  return new Set();
};
