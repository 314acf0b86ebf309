// Runs the module in a Worker. Calls run one after the other. Training runs in slices of 40 ms, so that it can be stopped
// between them. A call that fails traps and leaves its message; the module then accepts further calls.

const slice = 40;
let compiled, module, memory, stack;
let weights = []; // weights of the open network
let running = null; // {until, pause, call}
const bytes = (text) => new TextEncoder().encode(text);

async function renew() {
  module = (await WebAssembly.instantiate(compiled, {})).exports;
  memory = module.memory;
  module._initialize();
  stack = module.__stack_pointer.value;
}

// Copies bytes or text to the input of the module, and returns their number.
function give(...parts) {
  const all = parts.map((part) => (typeof part === "string" ? bytes(part) : part));
  const size = all.reduce((sum, part) => sum + part.length, 0);
  let at = module.room(size);
  for (const part of all) {
    new Uint8Array(memory.buffer).set(part, at);
    at += part.length;
  }
  return size;
}

function text(at) {
  const all = new Uint8Array(memory.buffer);
  return new TextDecoder().decode(all.subarray(at, all.indexOf(0, at)));
}

const told = () => JSON.parse(text(module.text()));
const numbers = (at, count) => new Float32Array(memory.buffer, module.numbers_at(), module.numbers_count()).slice(at, at + count);
const count = (extents) => extents.reduce((product, extent) => product * extent, 1);

// Replaces the offsets in an answer by the numbers stored there.
function filled(answer) {
  for (const array of [...(answer.arrays ?? []), ...(answer.gradients ?? [])]) {
    array.values = numbers(array.at, count(array.extents));
    delete array.at;
  }
  if (answer.probabilities !== undefined) answer.probabilities = numbers(answer.probabilities, answer.rows * answer.columns);
  if (typeof answer.losses === "number") answer.losses = numbers(answer.losses, (answer.characters ?? answer.targets).length);
  return answer;
}

function opened() {
  const answer = told();
  weights = answer.weights;
  return answer;
}

// Encodes the input of look and answer: a text, the pixels of a picture, or an object with the number of a test example.
const input = (given) =>
  typeof given === "string"
    ? give("t", given)
    : given instanceof Float32Array
      ? give("p", new Uint8Array(given.buffer, given.byteOffset, given.byteLength))
      : give("e" + given.example);

// Encodes a change as words (Session::touch). A metric is a weight, and only its upper triangle is stored, row by row.
function changed({layer, head, what, array, weight, index, value}) {
  if (what) return [what, layer, head];
  if (weight) return ["weight", weight, place(weight, index), value];
  if (array !== "metric_nkk") return ["logit", layer, array, ...index.slice(-2), value];
  const {name, extents} = weights.find(({name}) => name.startsWith(`${layer}.metric`));
  if (extents.length === 3) return ["weight", name, place(name, index), value];
  const [n, row, column] = [index[0], Math.min(index[1], index[2]), Math.max(index[1], index[2])];
  const size = (Math.sqrt(8 * extents[1] + 1) - 1) / 2;
  return ["weight", name, n * extents[1] + row * size - (row * (row - 1)) / 2 + column - row, value];
}
function place(weight, index) {
  const found = weights.find(({name}) => name === weight);
  return found ? found.extents.reduce((at, extent, i) => at * extent + index[i], 0) : 0;
}

// Trains for one slice of time and returns the results.
function steps(until) {
  const losses = [];
  const end = performance.now() + (running?.pause ? 0 : slice);
  do losses.push(module.step());
  while (module.steps() < until && performance.now() < end);
  return {
    step: module.steps(),
    losses: Float64Array.from(losses),
    gradient_norm: module.gradient_norm(),
    learning_rate: module.learning_rate(),
    done: module.done() === 1,
  };
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function train(until, wait) {
  running = {pause: wait};
  const all = [];
  let last;
  try {
    while (running && !(module.done() && !Number.isFinite(until)) && (!last || last.step < until)) {
      last = steps(wait ? module.steps() + 1 : until);
      all.push(...last.losses);
      postMessage({event: "steps", value: last});
      await pause(wait);
    }
  } finally {
    running = null;
  }
  return {...last, losses: Float64Array.from(all)};
}

const methods = {
  async module(given) {
    compiled = await WebAssembly.compile(given);
    await renew();
  },
  open(flags, files) {
    for (const [name, content] of Object.entries(files ?? {})) module.file(give(name, "\0", content));
    module.open_run(give(...flags.map((word) => word + "\0")));
    return opened();
  },
  load(content, name) {
    module.load(give(name, "\0", content));
    return opened();
  },
  limit(batches, noise) {
    module.limit_data(batches, noise);
  },
  step: (n) => train(module.steps() + n, 0),
  run: (wait) => train(Infinity, wait ?? 0),
  async evaluate() {
    module.begin_evaluation();
    let end = performance.now() + slice;
    while (module.evaluate_some()) {
      if (performance.now() < end) continue;
      await pause(0);
      end = performance.now() + slice;
    }
    return told();
  },
  example(number) {
    module.example(number);
    const example = told();
    if (example.pixels !== undefined) {
      example.input = numbers(example.pixels, example.height * example.width);
      delete example.pixels;
    }
    return example;
  },
  look(given) {
    module.look(input(given));
    return filled(told());
  },
  answer(given) {
    module.answer(input(given));
    return filled(told());
  },
  memory() {
    module.holds();
    return told();
  },
  touch(changes) {
    module.touch(give(...changes.map((change) => changed(change).map((word) => `${word}\0`).join("") + "\0")));
  },
  values(name, arena) {
    module.values(give(name, "\0", arena, "\0"));
    const {extents, at} = told();
    return {extents, values: numbers(at, count(extents))};
  },
  async write({prompt, tokens = 500, temperature = 0.8, seed = 1337}) {
    module.begin_writing(give(prompt ?? ""), prompt === undefined ? 0 : 1, temperature, seed);
    let written = {text: ""};
    running = {};
    for (let left = tokens, end = performance.now() + slice; left > 0 && running; --left) {
      module.write_some(1);
      if (performance.now() < end && left > 1) continue;
      written = told();
      postMessage({event: "written", value: written.text});
      await pause(0);
      end = performance.now() + slice;
    }
    running = null;
    module.write_some(0);
    return told();
  },
  score(given) {
    module.score(give(given));
    return filled(told());
  },
  save() {
    module.save();
    return new Uint8Array(memory.buffer, module.bytes_at(), module.bytes_count()).slice();
  },
};

// Program that prints the same message in a terminal.
const programs = {look: "draw", example: "draw", answer: "generate", write: "generate", score: "evaluate", load: "generate"};

let queue = Promise.resolve();
onmessage = ({data: {call, method, given}}) => {
  if (method === "stop") {
    running = null;
    return;
  }
  queue = queue.then(async () => {
    try {
      postMessage({call, value: await methods[method](...given)});
    } catch (error) {
      running = null;
      const why = error instanceof WebAssembly.RuntimeError && module ? text(module.error()) : "";
      postMessage({call, error: why ? `${programs[method] ?? "train"}: ${why}` : String(error)});
      if (why) {
        module.__stack_pointer.value = stack;
        module.mend();
      }
    }
  });
};
