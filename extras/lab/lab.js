// The page: what is chosen becomes a network, which is trained, looked at and touched. Whatever is asked of the engine is
// asked by one of these functions; the other files only draw what came back.

const EVERY = {sort: 10, reviews: 100, digits: 200, text: 250};  // steps between two scores of the test set
const LOOKS = 250;  // milliseconds of training between two looks

class Lab {
  constructor(engine) {
    this.engine = engine;
    this.changes = new Map();  // what is touched, by its place
    this.text = find("text").value;
    this.curve = new Curve(find("curve"));
    this.arcs = new Arcs(find("arcs"));
    this.patches = new Patches(find("patches"));
    this.maps = new Maps(find("maps"), (choice) => this.choose(choice));
    this.head = new Head(find("head"), (key, change) => this.touch(key, change));
    this.outputs = new Outputs(find("outputs"));
    this.inside = new Inside(find("inside"), (name, arena) => engine.values(name, arena));
    this.known = new Known(find("known"), (name, arena) => engine.values(name, arena));
    this.memory = new Memory(find("memory"), () => engine.memory());
    this.backward = new Backward(find("backward"), (name, arena) => engine.values(name, arena));
    this.answers = new Answers(find("answers"), engine, (example) => this.lookAt(example));
    this.model = new OwnModel(find("model"), engine, (file) => this.load(file), (error) => this.told(error));
    this.settings = new Settings(find("settings"), () => this.open());
    find("train").onclick = () => (this.running ? this.stop() : this.train());
    find("one").onclick = () => this.step();
    find("anew").onclick = () => this.open();
    find("untouch").onclick = () => this.untouch();
    find("copy").onclick = () => this.copy();
    find("keep").onclick = () => handOut("text.txt", this.text);
    find("losses").ontoggle = () => this.listLosses();
    find("own").onsubmit = (event) => {
      event.preventDefault();
      this.lookAt({input: find("own").elements.input.value});
    };
    find("text").onchange = () => {
      this.text = find("text").value;
      this.open();
    };
    addEventListener("hashchange", () => {
      if (!/[=&]/.test(location.hash)) return;
      this.settings.fromAddress();
      this.open();
    });
    // Sections that were out of sight are drawn when they come into it.
    this.seers = [["inside", this.inside], ["known", this.known], ["memory", this.memory], ["backward", this.backward]];
    const watch = new IntersectionObserver((entries) => {
      for (const {target, isIntersecting} of entries) target.dataset.inView = isIntersecting ? "1" : "";
      this.show();
    });
    for (const [id] of this.seers) watch.observe(find(id));
  }

  // ---- A network ----

  // One that is new, as the form says.
  async open() {
    const flags = this.settings.flags();
    await this.begin(() => this.engine.open(flags, {"text.txt": new TextEncoder().encode(this.text)}));
  }

  // One that somebody has: a checkpoint. Another file is a text to learn.
  async load(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (!/\.safetensors$/.test(file.name)) {
      this.text = find("text").value = new TextDecoder().decode(bytes);
      find("settings").elements.task.value = "text";
      this.settings.take(TASKS.text.recipe);
      return this.open();
    }
    await this.begin(() => this.engine.load(bytes, file.name), file.name);
    find("see").scrollIntoView({block: "start"});
  }

  async begin(opened, file = "") {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    await this.stop();
    this.ready = false;
    try {
      const info = await opened();
      if (turn !== this.turn) return;
      this.told(null);
      await this.shown(info, file);
      if (turn !== this.turn) return;
    } catch (error) {
      if (turn === this.turn) this.told(error);
      return;
    }
    this.ready = true;
    this.state();
    if (this.wanted) this.train();
    this.wanted = false;
  }

  // Shows a network as it is before its first step.
  async shown(info, file) {
    const {turn} = this;
    this.info = info;
    this.at = this.info.step;
    this.steps = this.info.steps;
    this.scored = undefined;
    this.finished = false;
    this.changes.clear();
    this.posted = [];
    this.before = undefined;
    this.choice = undefined;
    this.example = undefined;
    this.curve.clear();
    this.curve.steps = this.steps;
    this.model.show(this.info);
    this.showTask(file);
    await this.answers.open(this.info);
    if (turn !== this.turn) return;
    this.example = this.answers.examples[0] ?? {input: this.text.slice(0, this.info.context)};
    if (info.task === "digits") this.padFor(this.example.input);
    await this.refresh();
    await this.score();
  }

  // A field to draw into, as large as the pictures of the network.
  padFor(pixels) {
    const side = Math.round(Math.sqrt(pixels.length));
    if (this.pad?.side !== side) this.pad = new DigitPad(find("pad"), side, (drawn) => this.lookAt({input: drawn}));
  }

  // The parts of the page that are of one task alone.
  showTask(file) {
    const {info} = this, root = find("lab");
    root.dataset.task = info.task;
    find("command").textContent = file ? `build/generate --checkpoint ${file}` : info.command;
    find("parameters").textContent = `${info.parameters.toLocaleString("en")} parameters` + (file ? `, from ${file}` : "");
    find("pasted").hidden = info.task !== "text";
    find("pad").parentElement.hidden = info.task !== "digits";
    const own = find("own");
    own.hidden = info.task === "digits";
    const example = {sort: "3 1 2 1 3 2", reviews: "not bad so very warm", text: "what it is to read"};
    own.elements.input.placeholder = example[info.task] ?? "";
    find("answers-title").textContent = info.task === "text" ? "Generated text" : "Test examples";
    find("how-right").textContent = "";
    find("train").disabled = find("one").disabled = !info.trains;
  }

  // ---- Training ----

  // Steps for a while, then a look, and so on: whoever looks sees numbers of one and the same step.
  async train() {
    if (!this.ready) return (this.wanted = true);  // as soon as it is there
    if (this.finished) await this.open();
    const turn = this.turn;
    this.running = true;
    this.announce("Training");
    this.state();
    this.engine.onsteps = (told) => this.turn === turn && this.stepped(told);
    this.done = this.keepTraining(turn);
    await this.done;
    if (turn !== this.turn) return;
    this.running = false;
    await this.refresh();
    await this.score();
    const right = this.scored === undefined ? "" : `, ${percent(this.scored)} correct`;
    this.announce(`Step ${this.at}, loss ${decimal(this.curve.losses.at(-1) ?? NaN)}${right}`);
    this.state();
  }

  async keepTraining(turn) {
    let each = 20, last = this.at, wrote = 0;  // each: milliseconds that a step takes
    while (this.running && turn === this.turn && this.at < this.steps) {
      const wait = +find("speed").value, began = performance.now(), before = this.at;
      try {
        await this.engine.step(wait ? 1 : Math.min(Math.max(1, Math.round(LOOKS / each)), this.steps - this.at));
      } catch (error) {
        return this.told(error);
      }
      if (this.at > before) each = (performance.now() - began) / (this.at - before);
      if (!this.running || turn !== this.turn) return;
      await this.refresh();
      if (this.at - last >= EVERY[this.info.task]) {
        last = this.at;
        await this.score();
      }
      if (this.info.task === "text" && performance.now() - wrote > 2500) {
        await this.sample();
        wrote = performance.now();
      }
      if (wait) await pause(Math.max(0, wait - (performance.now() - began)));
    }
    this.finished = this.at >= this.steps;
  }

  async stop() {
    if (!this.running) return;
    this.running = false;
    this.engine.stop();
    await this.done;
    this.state();
  }

  async step() {
    await this.stop();
    if (this.finished || !this.ready) return;
    const turn = this.turn;
    try {
      this.engine.onsteps = (told) => this.turn === turn && this.stepped(told);
      await this.engine.step(1);
    } catch (error) {
      this.told(error);
    }
    this.finished = this.at >= this.steps;
    await this.refresh();
    await this.score();
    this.state();
  }

  stepped({step, losses}) {
    this.at = step;
    this.curve.add(losses);
    this.state();
  }

  async score() {
    if (!this.info.trains) return;
    try {
      const step = this.at, found = await this.engine.evaluate();
      if (found.accuracy !== null && found.accuracy !== undefined) {
        this.scored = found.accuracy;
        this.curve.score(step, found.accuracy);
        const answers = found.answers.toLocaleString("en");
        find("how-right").replaceChildren(make("b", {}, percent(found.accuracy)), ` of ${answers} test answers correct`);
      } else find("how-right").replaceChildren(make("b", {}, decimal(found.loss, 3)), " nats per token on the validation part");
    } catch (error) {
      this.told(error);
    }
  }

  async sample() {
    const turn = this.turn;
    this.engine.onwritten = (text) => turn === this.turn && this.answers.write(text);
    try {
      const {text} = await this.engine.write({tokens: 160, temperature: 0.8, seed: 1});
      if (turn === this.turn) this.answers.write(text);
    } catch (error) {
      this.told(error);
    }
  }

  // ---- Looking and touching ----

  async lookAt(example) {
    if (!this.info) return;
    this.example = example;
    this.before = undefined;
    this.told(null);
    await this.refresh();
  }

  async refresh() {
    const {example, turn, posted} = this;
    if (!example) return;
    try {
      const seen = new Seen(await this.engine.look(asked(example)));
      if (turn !== this.turn) return;
      seen.changes = posted;
      this.seen = seen;
      this.show();
      await this.answers.refresh();
    } catch (error) {
      if (turn === this.turn) this.told(error);
    }
  }

  show() {
    const {seen, info} = this;
    if (!seen) return;
    const first = () => {
      const layer = seen.layers.findLast((one) => seen.weightsOf(one).length);
      const weights = layer !== undefined && seen.weightsOf(layer)[0];
      return weights ? {layer, name: weights.name, head: 0} : undefined;
    };
    if (!this.choice || !seen.array(this.choice.layer, this.choice.name)) this.choice = first();
    this.maps.show(seen, info, this.choice);
    const weights = this.choice && seen.array(this.choice.layer, this.choice.name), isPicture = info.task === "digits";
    find("arcs").hidden = isPicture;
    find("patches").hidden = !isPicture;
    if (isPicture) this.patches.show(this.example.input, weights);
    else this.arcs.show(seen, weights, this.chosen ? this.choice.head : undefined);
    find("head").hidden = !this.choice;
    if (this.choice) this.head.show(seen, info, this.choice, this.changes);
    this.outputs.show(seen, seen.changes.length ? this.before : undefined, info);
    find("untouch").hidden = !this.changes.size;
    for (const [id, part] of this.seers) if (find(id).dataset.inView) part.show(seen, info);
  }

  choose(choice) {
    this.choice = {layer: choice.layer, name: choice.name, head: choice.head};
    this.chosen = true;
    this.show();
  }

  async touch(key, change) {
    if (!this.seen.changes.length) this.before = this.seen;
    if (change) this.changes.set(key, change);
    else this.changes.delete(key);
    this.moved = key;
    await this.applied();
  }

  async untouch() {
    this.changes.clear();
    await this.applied();
  }

  // Sends the changes to the engine, for inspections requested from now on; earlier requests do not see them.
  post() {
    this.posted = [...this.changes.values()];
    return this.engine.touch(this.posted);
  }

  // One look at a time: what was moved meanwhile is looked at together.
  async applied() {
    if (this.applying) return (this.again = true);
    this.applying = true;
    do {
      this.again = false;
      try {
        await this.post();
        this.told(null);
      } catch (error) {
        this.told(error);  // what was moved last is what cannot be
        this.changes.delete(this.moved);
        await this.post();
      }
      await this.refresh();
    } while (this.again);
    this.applying = false;
    if (!this.running) await this.score();
  }

  // ---- What is said ----

  state() {
    const train = find("train"), {steps} = this, last = this.curve.losses.at(-1);
    train.textContent = this.running ? "Stop" : this.finished ? "Train again" : this.at ? "Continue" : "Train";
    train.setAttribute("aria-pressed", String(!!this.running));
    const loss = last === undefined ? "" : `, loss ${last.toFixed(4)}`;
    find("state").textContent = `step ${this.at} of ${steps}${loss}`;
    if (find("losses").open) this.listLosses();
  }

  listLosses() {
    const {losses} = this.curve, first = Math.max(0, losses.length - 200);
    const lines = losses.slice(first).map((loss, i) => `${first + i + 1}\t${Math.fround(loss)}`);
    find("losses").querySelector("pre").textContent = lines.reverse().join("\n");
  }

  // An error is the terminal's line; null: it is over.
  told(error) {
    const place = find("fault");
    if (error && !place.textContent) this.announce(error.message);
    place.textContent = error ? error.message : "";
    place.hidden = !error;
  }

  announce(text) {
    find("announced").textContent = text;
  }

  async copy() {
    const text = find("command").textContent;
    try {
      await navigator.clipboard.writeText(text);
      this.announce("copied");
      find("copy").textContent = "Copied";
      setTimeout(() => (find("copy").textContent = "Copy"), 1500);
    } catch {
      getSelection().selectAllChildren(find("command"));  // then it can be copied by hand
    }
  }
}

// An example of the test set is asked for by its number, as then its answer is known; anything else as it is.
const asked = (example) => (example.example === undefined ? example.input : {example: example.example});

// ---- The beginning ----

// The engine, with the module inside, is a script of its own, so that the page is there before it.
const started = () =>
  new Promise((done, failed) => {
    const script = make("script", {src: "lab-engine.js"});
    script.onload = () => {
      const engine = new Engine();
      engine.ready.then(() => done(engine), failed);
    };
    script.onerror = () => failed(new Error("lab-engine.js cannot be read"));
    document.head.append(script);
  });

async function begin() {
  for (const part of document.querySelectorAll(".live")) part.hidden = false;
  for (const part of document.querySelectorAll(".still")) part.hidden = true;
  // So that Enter is enough.
  if (document.activeElement === document.body) find("train").focus({preventScroll: true});
  // A mixer in the address is a wish here; without this script it is a place in the list at the end.
  if (location.hash.includes("=")) {
    for (const place of document.querySelectorAll(".choices [id]")) place.removeAttribute("id");
    scrollTo(0, 0);
    addEventListener("load", () => scrollTo(0, 0));
  }
  const wait = (find("train").onclick = () => (wait.wanted = true));
  try {
    const lab = new Lab(await started());
    lab.wanted = wait.wanted;
    await lab.open();
  } catch (error) {
    find("fault").hidden = false;
    find("fault").textContent = error.message;
  }
}
begin();
