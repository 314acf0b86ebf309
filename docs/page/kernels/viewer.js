// The page: one pane per level, each with its source, its lanes, its memory and the timeline of its warps.

const make = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};
const show = (value) => {
  if (value === undefined) return "";
  if (Number.isNaN(value)) return "NaN";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e5) return String(value).replace("-", "−");
  const text = size !== 0 && (size < 0.01 || size >= 1e4) ? value.toExponential(1) : value.toFixed(size < 10 ? 3 : 1);
  return text.replace(/\.?0+$/, "").replace("-", "−");
};
// Leaves the children in place if they are the same, so that the browser does not lay them out again.
const replace = (parent, children) => {
  if (children.length !== parent.children.length || children.some((child, at) => child !== parent.children[at])) parent.replaceChildren(...children);
};
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Indices of an element: row, column, ..., as in in_bcd[2, 20].
const placeOf = (array, at) => {
  const indices = [];
  for (const extent of array.shape.slice().reverse()) {
    indices.unshift(at % extent);
    at = Math.floor(at / extent);
  }
  return `${array.name}[${indices.join(", ")}]`;
};

// A canvas as wide as its container, with a context in CSS pixels.
const prepare = (canvas, height) => {
  const width = canvas.parentElement.clientWidth || 320, scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width];
};

const kinds = {
  r: ["reads global memory", "--a"], w: ["writes global memory", "--b"], R: ["reads shared memory", "--c"],
  W: ["writes shared memory", "--d"], x: ["exchanges numbers", "--mark"], v: ["votes", "--mark"],
  m: ["multiplies on tensor cores", "--forward"], b: ["waits for the block", "--faint"], y: ["waits for the warp", "--faint"],
}; // prettier-ignore

const traces = new Map();
const traceOf = (name) => {
  if (!traces.has(name)) traces.set(name, readTrace(kernelData.levels[name].trace));
  return traces.get(name);
};

class Pane {
  constructor(place, page, first) {
    this.page = page;
    this.state = {level: first, launch: 0, block: 0, warp: 0, step: 0, lane: 0};
    this.place = place;
    this.build();
  }

  get trace() { return traceOf(this.state.level); }
  get launch() { return this.trace.launches[this.state.launch]; }
  get block() { return this.launch.blocks[this.state.block]; }
  get events() { return this.block.warps[this.state.warp]; }
  get event() { return this.events[this.state.step]; }

  build() {
    const select = (label, key) => {
      const field = make("select", {onchange: () => this.go({[key]: key === "level" ? field.value : +field.value})});
      this.fields[key] = field;
      return make("label", {}, label + " ", field);
    };
    this.fields = {};
    this.bar = make("div", {className: "fields"}, select("Kernel", "level"), select("Launch", "launch"),
      select("Block", "block"), select("Warp", "warp"), select("Lane", "lane"));
    for (const name of Object.keys(kernelData.levels))
      this.fields.level.append(make("option", {value: name, textContent: kernelData.levels[name].title}));
    for (let lane = 0; lane < 32; ++lane) this.fields.lane.append(make("option", {value: lane, textContent: lane}));
    this.told = make("p", {className: "told"});
    this.told.setAttribute("aria-live", "polite");
    this.timeline = this.canvas("Timeline of the warps of the block. Arrow keys step; up and down change the warp.", (x, y) => this.pickTime(x, y));
    this.timeline.onkeydown = (key) => {
      const by = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[key.key];
      if (!by) return;
      key.preventDefault();
      if (by[1]) this.page.step(by[1]);
      else this.go({warp: this.state.warp + by[0]});
    };
    this.source = make("div", {className: "source"});
    this.equations = make("div", {className: "equations"});
    this.lanes = make("div", {className: "lanes"});
    this.cells = [];
    this.drawn = new Map();
    this.lists = new Map();
    for (let lane = 0; lane < 32; ++lane) {
      const cell = make("div", {onclick: () => this.go({lane})}, make("i", {textContent: lane}), make("b"), make("span"));
      this.cells.push(cell);
      this.lanes.append(cell);
    }
    this.arcs = make("div", {className: "arcs"});
    this.memory = make("div", {className: "memory"});
    this.origin = make("p", {className: "origin"});
    this.origin.setAttribute("aria-live", "polite");
    this.place.replaceChildren(this.bar, this.told, make("div", {className: "time"}, this.timeline),
      make("div", {className: "halves"},
        make("div", {className: "code-half"}, this.source, this.equations),
        make("div", {className: "machine"}, this.lanesTitle = make("h3"), this.arcs, this.lanes, this.memory, this.origin)));
  }

  canvas(label, pick) {
    const made = make("canvas", {tabIndex: 0, role: "img", ariaLabel: label, onclick: (event) => {
      const box = made.getBoundingClientRect();
      pick(event.clientX - box.left, event.clientY - box.top);
    }});
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", label);
    return made;
  }

  // Changes the position; a missing position becomes the nearest one.
  go(change, silent) {
    const old = this.state, next = {...old, ...change};
    if (!kernelData.levels[next.level]) next.level = old.level;
    if (next.level !== old.level && !("step" in change)) Object.assign(next, {launch: 0, block: 0, warp: 0, step: 0});
    const clamp = (key, end) => (next[key] = Math.min(Math.max(0, Math.trunc(next[key]) || 0), end - 1));
    const launches = traceOf(next.level).launches;
    clamp("launch", launches.length);
    clamp("block", launches[next.launch].blocks.length);
    const block = launches[next.launch].blocks[next.block];
    clamp("warp", block.warps.length);
    clamp("step", block.warps[next.warp].length);
    clamp("lane", 32);
    this.state = next;
    this.draw();
    if (!silent) this.page.moved();
  }

  // Moves forward or back by requests, to the next line, or to the next barrier.
  step(by, unit) {
    const line = (event) => event && this.trace.sites[event.site][0].join(":");
    let at = this.state.step;
    const from = line(this.event);
    do at += by;
    while (this.events[at] && (unit === "barrier" ? this.events[at].kind !== "b" : unit === "line" && line(this.events[at]) === from));
    if (this.events[at]) return this.go({step: at});
    // Past the end of the warp: to the next launch, or back to the previous one.
    const {launch, block} = this.state;
    if (unit === "barrier" && at > this.state.step && this.state.step < this.events.length - 1) this.go({step: this.events.length - 1});
    else if (by > 0 && this.trace.launches[launch + 1]) this.go({launch: launch + 1, block, step: 0});
    else if (by < 0 && launch > 0) this.go({launch: launch - 1, block, step: 1e9});
    else this.page.stop();
  }

  draw() {
    const {trace, block, event, state} = this;
    const fill = (key, count, name) => {
      const field = this.fields[key];
      if (field.options.length !== count || key === "launch")
        field.replaceChildren(...Array.from({length: count}, (_, i) => make("option", {value: i, textContent: name(i)})));
      field.value = state[key];
    };
    this.fields.level.value = state.level;
    fill("launch", trace.launches.length, (i) => trace.launches[i].name);
    fill("block", this.launch.blocks.length, (i) => `${this.launch.blocks[i].at.join(", ")} of ${this.launch.blocks[i].grid.join(", ")}`);
    fill("warp", block.warps.length, (i) => i);
    this.fields.lane.value = state.lane;
    // Sizes are read after all elements have changed, so that the browser lays the page out once.
    this.drawTold();
    this.drawSource();
    this.drawLanes();
    this.drawMemory();
    this.scrollSource();
    this.drawTimeline();
    this.origin.textContent = trace.fault && state.step === this.events.length - 1 ? `The launch ends here: ${trace.fault}` : "";
    if (event?.isRace) this.origin.textContent = "Here the lanes read other numbers than those written last in the order shown: a race, or memory that was never written.";
  }

  // Describes this step and its cost in a sentence.
  sentence(event) {
    const lanes = event.lanes.length === 32 ? "All 32 lanes" : plural(event.lanes.length, "lane") + " of 32";
    if (event.kind === "b") return "__syncthreads(): the warp waits until every thread of the block has reached the barrier.";
    if (event.kind === "y") return "__syncwarp(): the lanes wait for each other.";
    if (event.kind === "m") return "One product of tensor cores: 16 x 16 by 16 x 8 numbers. Each lane shows its four sums after the product.";
    if (event.kind === "v") return `${event.name}: ${plural(event.lanes.filter((lane) => event.values[lane][0]).length, "lane")} of the warp vote yes.`;
    if (event.kind === "x") return `${event.name}: every lane provides a number (upper) and gets the number of another lane (lower).`;
    const verb = (event.writes ? "write" : "read") + (event.lanes.length === 1 ? "s" : ""), each = plural(event.bytes, "byte");
    if (event.isShared) {
      const phases = phasesOf(event), passes = phases.reduce((sum, phase) => sum + phase.passes, 0);
      const worst = Math.max(...phases.map((phase) => phase.passes));
      const split = phases.length > 1 ? ` in ${phases.length} phases of up to ${128 / event.bytes} lanes` : "";
      return `${lanes} ${verb} ${each} each in shared memory${split}: ${plural(passes, "pass").replace("passs", "passes")}, ` +
        (worst > 1 ? `${conflictsOf(event)} more than needed (${worst}-way bank conflict).` : "no bank conflict.");
    }
    const {array} = event, sectors = sectorsOf(event).size;
    const distinct = piecesOf(event, 1, event.lanes).size;
    return `${lanes} ${verb} ${each} each of ${array.name}: asked for ${askedOf(event)} bytes` +
      `${distinct < askedOf(event) ? ` (${distinct} different ones)` : ""}, moved ${plural(sectors, "sector")} of 32 bytes = ${32 * sectors} bytes` +
      `, of which ${Math.round((100 * distinct) / (32 * sectors))} % are used.`;
  }

  drawTold() {
    const {event, state} = this;
    this.told.replaceChildren(make("b", {textContent: `Step ${event ? state.step + 1 : 0} of ${this.events.length}. `}),
      event ? this.sentence(event) : "This warp has no step here.");
  }

  // ---- The timeline: epochs between barriers, one row per warp

  layout() {
    const epochs = [];
    for (const events of this.block.warps) {
      let epoch = 0, count = 0;
      for (const event of events) {
        event.epoch = epoch;
        event.column = count++;
        epochs[epoch] = Math.max(epochs[epoch] ?? 0, count);
        if (event.kind === "b") ++epoch, (count = 0);
      }
    }
    let begin = 0;
    const starts = epochs.map((length) => (begin += length) - length);
    return {starts, columns: begin};
  }
  drawTimeline() {
    const {block, state} = this, row = block.warps.length > 12 ? 7 : 14;
    const high = row * block.warps.length + 2, ink = colour("--ink");
    const key = [state.level, state.launch, state.block, state.warp, ink, this.timeline.parentElement.clientWidth].join();
    if (key !== this.drawnTime) {
      this.drawnTime = key;
      this.drawRows(row, high);
      this.allTime = Object.assign(document.createElement("canvas"), {width: this.timeline.width, height: this.timeline.height});
      this.allTime.getContext("2d").drawImage(this.timeline, 0, 0);
    }
    const [context, width] = prepare(this.timeline, high);
    context.drawImage(this.allTime, 0, 0, width, high);
    if (!this.event) return;
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.strokeRect(this.event.x - 1, state.warp * row + 1, Math.max(this.time.each, 3), row - 2);
  }
  drawRows(row, high) {
    const {block, state} = this, [context, width] = prepare(this.timeline, high);
    const {starts, columns} = this.layout(), each = (width - 24) / Math.max(columns, 1);
    this.time = {row, each};
    const colours = Object.fromEntries(Object.entries(kinds).map(([kind, [, name]]) => [kind, colour(name)]));
    context.font = "9px sans-serif";
    block.warps.forEach((events, warp) => {
      context.fillStyle = colour(warp === state.warp ? "--ink" : "--faint");
      if (row > 8) context.fillText(warp, 2, warp * row + 10);
      for (const event of events) {
        const column = event.kind === "b" ? (starts[event.epoch + 1] ?? columns) - 1 : starts[event.epoch] + event.column;
        event.x = 22 + column * each;
        context.fillStyle = colours[event.kind];
        context.fillRect(event.x, warp * row + 1, Math.max(each - (each > 4 ? 1 : 0), 0.7), row - 2);
        if (event.isShared && each >= 1 && conflictsOf(event)) {
          context.fillStyle = colour("--backward");
          context.fillRect(event.x, warp * row + row - 4, Math.max(each - 1, 1), 3);
        }
      }
    });
  }
  pickTime(x, y) {
    const warp = Math.min(Math.floor(y / this.time.row), this.block.warps.length - 1), events = this.block.warps[warp];
    const step = events.findLastIndex((event) => event.x <= x);
    this.go({warp, step: Math.max(step, 0)});
  }

  // ---- The source, with the current line and the called lines

  drawSource() {
    const {event, trace} = this, frames = event ? trace.sites[event.site] : trace.sites[0] ?? [];
    // A list that was shown before is taken again; only its current line changes.
    const list = (depth, file, line, from, to) => {
      const key = [depth, file, from, to].join();
      if (!this.lists.has(key)) {
        const code = make("ol", {className: "code"});
        code.style.counterReset = `n ${from - 1}`;
        for (let at = from; at <= to; ++at) code.append(make("li", {innerHTML: kernelData.sources[file][at - 1] || "<br>"}));
        this.lists.set(key, code);
      }
      const code = this.lists.get(key), now = event ? code.children[line - from] : null;
      for (const item of code.querySelectorAll(".now")) if (item !== now) item.className = "", item.ariaCurrent = null;
      if (now) now.className = "now", now.ariaCurrent = "true";
      return code;
    };
    const key = frames.map((frame) => frame.join(":")).join(">");
    if (key !== this.shownSource) {
      const pieces = [];
      frames.forEach(([file, line], i) => {
        const lines = kernelData.sources[file];
        if (!lines) return;
        const whole = i === 0 && lines.length < 130, around = i === 0 ? 14 : 3;
        const from = whole ? 1 : Math.max(1, line - around), to = whole ? lines.length : Math.min(lines.length, line + around);
        pieces.push(make("h3", {textContent: (i ? "calls " : "") + `${file}:${line}`}), list(i, file, line, from, to));
      });
      this.source.replaceChildren(...pieces);
      this.shownSource = key;
    }
    this.drawEquations(frames);
  }
  scrollSource() {
    const now = this.source.querySelector(".now"), box = this.source.querySelector("ol");
    if (now && box) box.scrollTop = now.offsetTop - box.offsetTop - box.clientHeight / 2;
  }

  // Equations with tags in the statement, else after it, with the values of the selected lane.
  drawEquations(frames) {
    const tags = [];
    for (const [file, line] of frames) {
      const lines = kernelData.sources[file] ?? [];
      for (let at = line; at < line + 9 && !tags.length; ++at) {
        for (const [, tag] of (lines[at - 1] ?? "").matchAll(/\(([a-z_]+\.\d+)\)/g)) if (kernelData.equations[tag]) tags.push(tag);
      }
    }
    const pieces = [...new Set(tags)].slice(0, 2).map((tag) => {
      const box = make("div", {className: "math"});
      box.innerHTML = kernelData.equations[tag].math;
      box.append(make("a", {className: "tag", href: kernelData.equations[tag].href, textContent: `(${tag})`}));
      return box;
    });
    const known = this.numbers();
    if (known.length) pieces.push(make("p", {textContent: `Lane ${this.state.lane}, last numbers in global memory: ` + known.join(", ")}));
    this.equations.replaceChildren(...pieces);
  }
  // Last values that the selected lane accessed, per array.
  numbers() {
    const {state} = this, latest = new Map();
    for (let at = state.step; at >= 0 && latest.size < 8; --at) {
      const event = this.events[at];
      if (!event?.isAccess || event.isShared || !event.lanes.includes(state.lane)) continue;
      const {array} = event;
      if (latest.has(array)) continue;
      latest.set(array, `${array.count ? placeOf(array, event.first[state.lane]) : array.name} = ${event.values[state.lane].map(show).join(", ")}`);
    }
    return [...latest.values()];
  }

  // ---- The lanes

  drawLanes() {
    const {event, state} = this, drawn = event?.kind === "x";
    this.lanesTitle.textContent = `The 32 lanes of warp ${state.warp}` + (event && kinds[event.kind] ? `: the warp ${kinds[event.kind][0]}` : "");
    this.lanes.classList.toggle("exchange", drawn);
    this.cells.forEach((cell, lane) => {
      const values = event?.values[lane], active = event?.lanes.includes(lane);
      cell.className = (active ? "on" : "") + (lane === state.lane ? " chosen" : "");
      cell.children[1].textContent = active && values ? values.map(show).join(" ") : "";
      cell.children[2].textContent = drawn && active ? event.values[event.at[lane]].map(show).join(" ") : "";
      cell.classList.toggle("many", (values?.length ?? 0) > 1);
    });
    if (!drawn) return this.arcs.replaceChildren();
    const arcs = event.lanes.filter((lane) => event.at[lane] !== lane).map((lane) => {
      const from = event.at[lane] * 20 + 10, to = lane * 20 + 10, height = Math.min(10 + Math.abs(to - from) / 8, 60);
      return `<path d="M${from} 74Q${(from + to) / 2} ${74 - 2 * height} ${to} 74"${lane === state.lane ? ' class="chosen"' : ""}/>`;
    });
    const numbers = Array.from({length: 32}, (_, lane) => `<text x="${lane * 20 + 10}" y="88">${lane}</text>`);
    this.arcs.innerHTML = `<svg viewBox="0 0 640 92" role="img"><title>Lane ${state.lane} gets the number of lane ${event.at[state.lane]}</title>${arcs.join("")}${numbers.join("")}</svg>`;
  }

  // ---- Memory

  drawMemory() {
    const {event} = this, pieces = [];
    this.drawings = [];
    // A drawing keeps its place in the page from step to step.
    const add = (key, title, label, draw, pick) => {
      if (!this.drawn.has(key)) {
        const canvas = this.canvas(label, pick ?? (() => {}));
        this.drawn.set(key, [make("h3"), make("div", {className: "drawn"}, canvas), canvas]);
      }
      const [head, box, canvas] = this.drawn.get(key);
      if (head.textContent !== title) head.textContent = title;
      canvas.setAttribute("aria-label", label);
      pieces.push(head, box);
      this.drawings.push(() => draw(canvas));
    };
    if (event?.isShared) this.addBanks(add, event);
    if (event?.kind === "b") pieces.push(this.arrivals());
    const arrays = [];
    if (event?.isAccess && !event.isShared) arrays.push(event.array);
    for (let at = this.state.step; at >= 0 && arrays.length < 3; --at) {
      const one = this.events[at];
      if (one?.isAccess && !one.isShared && !arrays.includes(one.array)) arrays.push(one.array);
    }
    for (const array of arrays.filter((one) => one.count)) {
      add(`${this.state.level} ${array.name}`, `${array.name}, ${array.shape.join(" x ")}: blue is read in this step, orange written, yellow is the rest of the moved sectors, faint was accessed before`,
        `The array ${array.name}. Click a number to see where it comes from.`,
        (canvas) => this.drawArray(canvas, array), (x, y) => this.pickElement(array, x, y));
    }
    replace(this.memory, pieces);
    for (const draw of this.drawings) draw();
  }

  drawArray(canvas, array) {
    const columns = array.shape.at(-1) > 4 || array.shape.length === 1 ? array.shape.at(-1) : array.shape.slice(-2).reduce((a, b) => a * b);
    const across = Math.min(columns, 128), rows = Math.ceil(array.count / across);
    const width = canvas.parentElement.clientWidth, cell = Math.max(2, Math.min(14, (width - 2) / across)), high = Math.max(cell, rows > 40 ? 3 : rows > 16 ? 6 : 11);
    const [context] = prepare(canvas, rows * high + 2);
    array.grid = {across, cell, high};
    context.fillStyle = colour("--panel");
    context.fillRect(0, 0, across * cell, rows * high);
    const gap = cell > 4 ? 1 : 0;
    const fill = (at) => context.fillRect((at % across) * cell, Math.floor(at / across) * high, cell - gap, high - gap);
    const touches = touchesOf(this.block, this.state.warp, array);
    for (const [steps, name] of [[touches.read, "--a"], [touches.written, "--b"]]) {
      context.fillStyle = colour(name);
      // One rectangle for neighbours in a row: there are thousands of cells, and the gaps between them follow.
      for (let at = 0, end; at < array.count; at = end) {
        const past = steps[at] < this.state.step, last = Math.min(array.count, (Math.floor(at / across) + 1) * across);
        for (end = at + 1; end < last && steps[end] < this.state.step === past; ++end);
        if (past) context.fillRect((at % across) * cell, Math.floor(at / across) * high, (end - at) * cell, high);
      }
    }
    context.fillStyle = colour("--panel");
    for (let column = 1; gap && column <= across; ++column) context.fillRect(column * cell - gap, 0, gap, rows * high);
    for (let row = 1; gap && row <= rows; ++row) context.fillRect(0, row * high - gap, across * cell, gap);
    // Sectors that are transferred for only a few of their elements.
    const now = this.event?.isAccess && this.event.array === array ? this.event : null, moved = now ? sectorsOf(now) : [];
    context.fillStyle = colour("--mark");
    for (const sector of moved) {
      for (let byte = 0; byte < 32; byte += array.size) {
        const at = (sector * 32 + byte - array.first) / array.size;
        if (at >= 0 && at < array.count) context.fillRect((at % across) * cell, Math.floor(at / across) * high, cell, high);
      }
    }
    context.strokeStyle = colour("--ink");
    context.fillStyle = colour(now?.writes ? "--backward" : "--forward");
    for (const lane of now?.lanes ?? []) {
      for (let i = 0; i < now.count; ++i) fill(now.first[lane] + i);
      const at = now.first[lane];
      if (lane === this.state.lane) context.strokeRect((at % across) * cell + 0.5, Math.floor(at / across) * high + 0.5, cell * now.count - 1, high - 1);
    }
    for (const at of this.origins?.get(array) ?? []) {
      context.strokeStyle = colour("--ink");
      context.strokeRect((at % across) * cell + 0.5, Math.floor(at / across) * high + 0.5, Math.max(cell - 1, 1), high - 1);
    }
  }

  // Origin of the selected number.
  pickElement(array, x, y) {
    const {across, cell, high} = array.grid, at = Math.floor(y / high) * across + Math.min(Math.floor(x / cell), across - 1);
    if (!(at >= 0 && at < array.count)) return;
    const writes = (one) => one.isAccess && one.writes && !one.isShared;
    let found, lane;
    for (const event of this.block.order) {
      if (!writes(event)) continue;
      const one = event.array === array ? event.lanes.find((mine) => elementsOf(event, mine).includes(at)) : undefined;
      if (one !== undefined) [found, lane] = [event, one];
    }
    if (!found) {
      this.origin.textContent = `${placeOf(array, at)} = ${show(array.before[at])} at the start. This block does not write it.`;
      return;
    }
    const names = new Map();
    for (const name of originsOf(this.block, found, lane)) {
      const [from, number] = name.split(" ");
      if (!names.has(from)) names.set(from, []);
      names.get(from).push(+number);
    }
    this.go({warp: found.warp, step: found.index, lane});
    this.origins = new Map([...names].map(([name, all]) => [this.trace.arrays.find((one) => one.name === name), all]));
    for (const draw of this.drawings) draw();
    this.origins = null;
    const parts = [...names].map(([name, all]) => {
      const one = this.trace.arrays.find((other) => other.name === name);
      all.sort((a, b) => a - b);
      return `${plural(all.length, "number")} of ${name}, from ${placeOf(one, all[0])} to ${placeOf(one, all.at(-1))}`;
    });
    this.origin.textContent = `${placeOf(array, at)} = ${show(found.values[lane][elementsOf(found, lane).indexOf(at)])}, written by lane ${lane} of warp ${found.warp}. It comes from at most ${parts.join("; ") || "no read"}.`;
  }

  // Shared memory as 32 banks: one column per bank, one row per 128 bytes that the request accesses.
  addBanks(add, event) {
    const phases = phasesOf(event), lines = [...new Set(phases.flatMap((phase) => phase.banks.flat().map((word) => Math.floor(word / 32))))].sort((a, b) => a - b);
    const name = this.block.shared.findLast((one) => event.at[event.lanes[0]] >= one.first)?.name ?? "shared memory";
    phases.slice(0, 4).forEach((phase, number) => {
      const title = (phases.length > 1 ? `Phase ${number + 1} of ${phases.length}, lanes ${phase.lanes[0]} to ${phase.lanes.at(-1)}: ` : `${name}: `) +
        `32 banks, ${phase.passes === 1 ? "one pass" : `${phase.passes} passes`}`;
      add(`phase ${number}`, title, `${title}. Columns are banks, rows are lines of 128 bytes, numbers are lanes.`, (canvas) => {
        const rows = lines.filter((line) => phase.banks.flat().some((word) => Math.floor(word / 32) === line)), high = 15;
        const [context, width] = prepare(canvas, (rows.length + 1) * high), each = width / 32;
        context.font = `${each < 14 ? 7 : 9}px sans-serif`;
        context.textAlign = "center";
        for (let bank = 0; bank < 32; ++bank) {
          context.fillStyle = colour("--faint");
          if (each > 11 || bank % 4 === 0) context.fillText(bank, bank * each + each / 2, 10);
          rows.forEach((line, row) => {
            const pass = phase.banks[bank].indexOf(line * 32 + bank);
            context.fillStyle = pass < 0 ? colour("--panel") : pass === 0 ? colour("--a") : colour("--b");
            context.fillRect(bank * each, (row + 1) * high, each - 1, high - 1);
            if (pass < 0) return;
            const lanes = phase.lanes.filter((lane) => event.at[lane] <= (line * 32 + bank) * 4 + 3 && event.at[lane] + event.bytes > (line * 32 + bank) * 4);
            context.fillStyle = colour("--ink");
            context.fillText(lanes.length > 1 && each < 22 ? lanes[0] + "+" : lanes.slice(0, 2).join(",") + (lanes.length > 2 ? "+" : ""), bank * each + each / 2, (row + 1) * high + 10);
          });
        }
      });
    });
  }

  arrivals() {
    const {block, state} = this, mine = this.events.slice(0, state.step + 1).filter((event) => event.kind === "b").length;
    const list = block.warps.map((events, warp) => {
      const barrier = events.filter((event) => event.kind === "b")[mine - 1];
      const here = barrier && barrier.number <= this.event.number;
      return make("li", {textContent: `warp ${warp}: ${warp === state.warp ? "waits here" : here ? "has arrived" : "still on its way"}`});
    });
    return make("div", {}, make("h3", {textContent: `Barrier ${mine} of the block`}), make("ul", {className: "arrivals"}, ...list));
  }
}

class Page {
  constructor(place) {
    const levels = Object.keys(kernelData.levels);
    this.unit = "request";
    const button = (text, label, onclick) => {
      const made = make("button", {type: "button", textContent: text, title: label, onclick});
      made.setAttribute("aria-label", label);
      return made;
    };
    this.player = button("Play", "Play", () => (this.timer ? this.stop() : this.play()));
    const units = make("select", {onchange: () => (this.unit = units.value)});
    for (const unit of ["request", "line", "barrier"]) units.append(make("option", {value: unit, textContent: unit}));
    this.beside = make("select", {onchange: () => this.compare(this.beside.value)});
    this.beside.append(make("option", {value: "", textContent: "nothing"}),
      ...levels.map((name) => make("option", {value: name, textContent: kernelData.levels[name].title})));
    this.places = [make("section", {className: "pane"}), make("section", {className: "pane", hidden: true})];
    this.places[0].setAttribute("aria-label", "Kernel");
    this.places[1].setAttribute("aria-label", "Kernel beside it");
    place.replaceChildren(make("div", {className: "controls"},
      button("|◀", "To the first step", () => this.each((pane) => pane.go({step: 0}))),
      button("◀", "Step back", () => this.step(-1)), button("▶", "Step forward", () => this.step(1)),
      button("▶|", "To the last step", () => this.each((pane) => pane.go({step: 1e9}))), this.player,
      make("label", {}, "Step by ", units), make("label", {}, "Beside it ", this.beside)),
      make("p", {className: "legend", textContent: "In the timeline a row is a warp and a column a request. Click the timeline, a lane, or a " +
        "number of an array to select it. With the timeline selected, the arrow keys step and change the warp."}),
      make("div", {className: "panes"}, ...this.places),
      make("p", {className: "legend"}, ...Object.values(kinds).filter(([, name], i, all) => all.findIndex((one) => one[1] === name) === i)
        .flatMap(([text, name]) => {
          const box = make("i");
          box.style.background = `var(${name})`;
          return [box, text + " "];
        })));
    this.panes = [new Pane(this.places[0], this, levels[0])];
    addEventListener("resize", () => this.each((pane) => pane.draw()));
    new MutationObserver(() => this.each((pane) => pane.draw())).observe(document.documentElement, {attributeFilter: ["data-theme"]});
    // From the event: location may already have the position written after the last step.
    addEventListener("hashchange", ({newURL}) => this.read(new URL(newURL).hash));
    this.read(location.hash);
  }

  each(work) { this.panes.forEach(work); }
  step(by) { this.each((pane) => pane.step(by, this.unit)); }
  play() {
    this.timer = setInterval(() => this.step(1), 500);
    this.player.textContent = "Stop";
  }
  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    this.player.textContent = "Play";
  }
  compare(level) {
    this.beside.value = level;
    this.places[1].hidden = !level;
    this.places[0].parentElement.classList.toggle("two", Boolean(level));
    if (!level) this.panes.length = 1;
    else {
      this.panes[1] ??= new Pane(this.places[1], this, level);
      this.panes[1].go({level, launch: 0, block: 0, warp: 0, step: 0}, true);
    }
    this.panes[0].draw();
    this.moved();
  }

  // The address holds the position: #level=2&step=3. It is written after a pause, because a change of the address takes
  // the browser longer than a step.
  moved() {
    clearTimeout(this.writing);
    if (!this.reading) this.writing = setTimeout(() => this.write(), 100);
  }
  write() {
    const write = (pane) => Object.entries(pane.state).map(([key, value]) => `${key}=${value}`).join("&");
    const words = [write(this.panes[0])];
    if (this.panes[1]) words.push("beside=" + this.panes[1].state.level, "besideStep=" + this.panes[1].state.step);
    history.replaceState(0, 0, "#" + words.join("&"));
  }
  read(address) {
    const given = Object.fromEntries(new URLSearchParams(address.slice(1)));
    if (!("level" in given) && address) return;
    this.reading = true;
    const numbers = {};
    for (const key of ["launch", "block", "warp", "step", "lane"]) numbers[key] = +(given[key] ?? 0);
    this.panes[0].go({level: given.level ?? this.panes[0].state.level, ...numbers}, true);
    if (kernelData.levels[given.beside]) {
      this.compare(given.beside);
      this.panes[1].go({launch: numbers.launch, step: +(given.besideStep ?? 0)}, true);
    } else if (this.panes[1]) this.compare("");
    this.reading = false;
    if (given.level) this.places[0].scrollIntoView({block: "start"});
  }
}

new Page(document.getElementById("kernels"));
