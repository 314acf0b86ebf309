// Controller of the page: opens a network from the settings, trains it, inspects it and changes it.

const LOOKS = 250;  // milliseconds of training between two inspections
const RECENT = 50;  // number of steps in train_loss, the mean loss that a terminal prints
const SHOWN_TEXT = 1 << 17;  // largest number of bytes of a text that the page shows

const encoded = (text) => new TextEncoder().encode(text);

class Lab {
  constructor(engine) {
    this.engine = engine;
    this.turn = 0;
    this.changes = new Map();  // changes of the network, by key
    this.text = {name: "text.txt", bytes: encoded(find("text").value)};
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
    this.follow = new Follow(find("follow"), (name, arena) => engine.values(name, arena));
    this.presenter = new Presenter(find("lab"), find("present"), find("slides"));
    this.model = new OwnModel(find("model"), engine, (file) => this.load(file), (name, words, job) => this.attempt(name, words, job));
    this.settings = new Settings(find("settings"), () => this.open());
    this.experiments = new Experiments(find("experiments"), (...run) => this.openRun(...run));
    const own = find("own");
    this.places = {fault: find("fault"), file: find("file-fault")};
    for (const [name, form] of Object.entries({own, write: this.model.writing, score: this.model.scoring})) {
      this.places[name] = form.querySelector(".fault");
    }
    this.works = new Works(find("lab"), this.places);
    find("train").onclick = () => (this.running ? this.stop() : this.train());
    find("one").onclick = () => this.step();
    find("anew").onclick = () => this.open();
    find("untouch").onclick = () => this.untouch();
    find("copy").onclick = () => this.copy();
    find("keep").onclick = () => handOut(this.text.name, this.text.bytes);
    find("losses").ontoggle = () => this.listLosses();
    own.onsubmit = (event) => {
      event.preventDefault();
      this.attempt("own", "Inspecting", () => this.lookAt({input: own.elements.input.value}, "own"));
    };
    find("text").onchange = () => {
      this.text = {name: "text.txt", bytes: encoded(find("text").value)};
      this.open();
    };
    addEventListener("hashchange", () => {
      if (!/[=&]/.test(location.hash)) return;
      this.openAddress();
    });
    // Sections are drawn once per network, and again while they are visible.
    this.seers = [["follow", this.follow], ["inside", this.inside], ["known", this.known], ["memory", this.memory], ["backward", this.backward]];
    const watch = new IntersectionObserver((entries) => {
      for (const {target, isIntersecting} of entries) target.dataset.inView = isIntersecting ? "1" : "";
      this.show();
    });
    for (const [id] of this.seers) watch.observe(find(id));
  }

  // ---- A network ----

  openAddress() {
    if (this.experiments.fromAddress()) return;
    this.settings.fromAddress();
    return this.open();
  }

  // Opens a run of an experiment and keeps the curves of earlier runs.
  openRun(address, name, trains) {
    if (trains) this.curve.keep(this.run);
    else this.curve.forget();
    this.run = this.curve.name = name;
    this.settings.fromAddress(address);
    this.wanted = trains;
    return this.open(true);
  }

  // Opens a new network with the current settings. If that fails, no network is shown.
  async open(isRun = false) {
    if (!isRun) this.curve.forget();
    const words = this.settings.task === "text" ? `Opening ${this.text.name}, ${size(this.text.bytes.length)}` : "Opening the network";
    await this.begin(() => this.opened(), {words});
  }

  async opened() {
    const {name, bytes} = this.text, isText = this.settings.task === "text";
    const info = await this.engine.open(this.settings.flags(name), isText ? {[name]: bytes} : {});
    const {batches, noise} = this.settings.limits(info, bytes.length);
    this.limited = batches > 0 || noise > 0;
    if (this.limited) await this.engine.limit(batches, noise);
    return info;
  }

  // Opens a file of the user: a checkpoint or a training text. A file that cannot be opened changes nothing.
  async load(file) {
    const isModel = /\.safetensors$/.test(file.name), {settings, text} = this, before = settings.state;
    await this.begin(async () => {
      let bytes;
      try {
        bytes = new Uint8Array(await file.arrayBuffer());
      } catch {
        throw new Error(`${file.name}: cannot read this file; open it again`);
      }
      if (isModel) return this.engine.load(bytes, file.name);
      this.text = {name: file.name, bytes};
      settings.takeTask("text");
      settings.showLayers();
      try {
        return await this.opened();
      } catch (error) {
        this.text = text;
        settings.state = before;
        throw error;
      }
    }, {place: "file", words: `Opening ${file.name}, ${size(file.size)}`, file: isModel ? file.name : ""});
    if (isModel && this.places.file.hidden) find("see").scrollIntoView({block: "start"});
    else if (!this.places.file.hidden) this.places.file.scrollIntoView({block: "center"});
  }

  async begin(opened, {place = "fault", words, file = ""}) {
    const turn = ++this.turn;
    await this.stop();
    const {ready} = this;
    this.ready = false;
    const done = this.works.begin(place, words);
    let failure;
    try {
      const info = await opened();
      if (turn !== this.turn) return;
      for (const name of Object.keys(this.places)) this.told(null, name);
      await this.shown(info, file);
    } catch (error) {
      failure = error;
    } finally {
      done();
    }
    if (turn !== this.turn) return;
    this.ready = failure ? place !== "fault" && ready : true;
    if (failure) this.told(failure, place);
    if (failure && place === "fault") this.empty(true);
    this.state();
    if (this.ready && this.wanted) this.train();
    this.wanted = false;
  }

  // Hides the pictures of a network that is no longer open.
  empty(is) {
    if (is) this.seen = this.example = undefined;
    for (const part of document.querySelectorAll("#lab .of-network")) part.hidden = is;
  }

  // Shows a network before its first step.
  async shown(info, file) {
    const {turn} = this;
    this.info = info;
    this.at = this.info.step;
    this.steps = this.info.steps;
    this.scored = undefined;
    this.finished = false;
    this.changes.clear();
    this.posted = [];
    this.seen = undefined;
    this.before = undefined;
    this.choice = undefined;
    this.example = undefined;
    this.curve.clear();
    this.curve.steps = this.steps;
    this.showTask(file);
    await this.answers.open(this.info);
    if (turn !== this.turn) return;
    const sample = info.task === "text" ? await this.sample() : "";
    if (turn !== this.turn) return;
    this.model.show(this.info, sample);
    this.example = this.answers.examples[0] ?? this.spelled(sample);
    if (info.task === "digits" && this.example) this.padFor(this.example.input);
    await this.refresh(file ? "file" : "fault");
    if (turn !== this.turn) return;
    this.empty(!this.seen);
    await this.score();
  }

  // Returns an input inside the vocabulary for a network without a test set: the beginning of its generated sample.
  spelled(sample) {
    const {task, context} = this.info;
    if (task === "text") return {input: [...sample].slice(0, Math.min(context, 48)).join("")};
    return task === "reviews" ? {input: "not bad so very warm"} : undefined;
  }

  // Creates the drawing field with the size of the network's pictures.
  padFor(pixels) {
    const side = Math.round(Math.sqrt(pixels.length));
    if (this.pad?.side !== side) this.pad = new DigitPad(find("pad"), side, (drawn) => this.lookAt({input: drawn}));
  }

  // Shows the parts of the page that belong to the task.
  showTask(file) {
    const {info} = this, root = find("lab");
    root.dataset.task = info.task;
    find("command").textContent = file ? `build/generate --checkpoint ${file}` : info.command;
    find("parameters").textContent = `${info.parameters.toLocaleString("en")} parameters` + (file ? `, from ${file}` : "");
    find("pasted").hidden = info.task !== "text" || !!file;
    this.showText();
    find("cannot").textContent = file ? "" : this.settings.cannot();
    find("cannot").hidden = !find("cannot").textContent;
    find("notes").textContent = info.notes.join("; ");
    find("notes").hidden = !info.notes.length;
    find("overfit").hidden = true;
    find("same").hidden = this.limited && !file;
    find("unlike").hidden = !this.limited || !!file;
    find("pad").parentElement.hidden = info.task !== "digits";
    const own = find("own");
    own.hidden = info.task === "digits";
    const example = {sort: "3 1 2 1 3 2", reviews: "not bad so very warm", text: "what it is to read"};
    own.elements.input.placeholder = example[info.task] ?? "";
    find("answers-title").textContent = info.task === "text" ? "Generated text" : "Test examples";
    find("how-right").textContent = "";
  }

  // Shows the training text. It is editable if it is short and the text field keeps its bytes unchanged.
  showText() {
    const {name, bytes} = this.text, field = find("text"), isLong = bytes.length > SHOWN_TEXT, note = find("long");
    const text = new TextDecoder("utf-8", {ignoreBOM: true}).decode(bytes.subarray(0, SHOWN_TEXT));
    if (field.value !== text) field.value = text;
    const isWhole = !isLong && encoded(field.value).length === bytes.length;
    field.readOnly = !isWhole;
    note.hidden = isWhole;
    note.textContent = isLong
      ? `${name} has ${size(bytes.length)}: the page shows the first ${size(SHOWN_TEXT)}, and the network learns the whole text.`
      : `${name} has line ends or bytes that this field cannot edit. The network learns the unchanged file.`;
    find("keep").textContent = `Save as ${name}`;
  }

  // ---- Training ----

  // Alternates training and inspection, so that all displayed numbers belong to the same step.
  async train() {
    if (!this.ready) return (this.wanted = true);  // trains when the network is open
    if (this.finished) await this.open(true);
    if (!this.ready) return;
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
    if (this.info.task === "text") await this.sample();
    this.announce(`Step ${this.at}, loss ${decimal(this.curve.losses.at(-1) ?? NaN)}${right}`);
    this.state();
  }

  async keepTraining(turn) {
    let each = 20, evaluated = 0, takes = 0, wrote = 0;  // each, takes: milliseconds per step and per evaluation
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
      // Evaluations take at most a quarter of the time.
      if (performance.now() - evaluated >= 3 * takes) {
        const start = performance.now();
        await this.score();
        evaluated = performance.now();
        takes = evaluated - start;
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
      return this.told(error);
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
    const {turn} = this;
    try {
      const step = this.at, found = await this.engine.evaluate(), counts = found.accuracy !== null && found.accuracy !== undefined;
      if (turn !== this.turn) return;
      if (counts) this.scored = found.accuracy;
      this.curve.score(step, found.loss, counts ? found.accuracy : undefined);
      const held = `validation loss ${decimal(found.loss)}`;
      find("how-right").replaceChildren(...(counts
        ? [make("b", {}, percent(found.accuracy)), ` of ${found.answers.toLocaleString("en")} test answers correct after step ${step}, ${held}`]
        : [make("b", {}, decimal(found.loss, 3)), ` nats per token on the validation text after step ${step}`]));
      const overfits = this.curve.overfits();
      find("overfit").textContent = overfits;
      find("overfit").hidden = !overfits;
    } catch (error) {
      this.told(error);
    }
  }

  // Generates text and shows it.
  async sample() {
    const {turn} = this;
    this.engine.onwritten = (text) => turn === this.turn && this.answers.write(text);
    try {
      const {text} = await this.engine.write({tokens: 160, temperature: 0.8, seed: 1});
      if (turn === this.turn) this.answers.write(text);
      return text;
    } catch (error) {
      if (turn === this.turn) this.told(error);
      return "";
    }
  }

  // ---- Inspection and changes ----

  // Inspects an example. If that fails, the previous example stays. place: name of the form that shows messages.
  async lookAt(example, place = "fault") {
    if (!this.info) return;
    const {example: last, before} = this;
    this.example = example;
    this.before = undefined;
    this.told(null, place);
    if (!(await this.refresh(place))) Object.assign(this, {example: last, before});
  }

  // Inspects the example again; true: success.
  async refresh(place = "fault") {
    const {example, turn, posted} = this;
    if (!example) return false;
    try {
      const seen = new Seen(await this.engine.look(asked(example)));
      if (turn !== this.turn) return false;
      seen.changes = posted;
      this.seen = seen;
      this.show();
      await this.answers.refresh();
      return true;
    } catch (error) {
      if (turn === this.turn) this.told(error, place);
      return false;
    }
  }

  // Runs the work of a form, and shows its error message next to the form.
  async attempt(place, words, job) {
    const done = this.works.begin(place, words);
    try {
      this.told(null, place);
      await job();
    } catch (error) {
      this.told(error, place);
    } finally {
      done();
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
    for (const [id, part] of this.seers) if (find(id).dataset.inView || part.info !== info) part.show(seen, info);
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

  // Sends the changes to the engine. They apply to inspections that are requested later.
  post() {
    this.posted = [...this.changes.values()];
    return this.engine.touch(this.posted);
  }

  // Applies one inspection at a time. Changes made during an inspection are applied together after it.
  async applied() {
    if (this.applying) return (this.again = true);
    this.applying = true;
    do {
      this.again = false;
      try {
        await this.post();
        this.told(null);
      } catch (error) {
        this.told(error);  // the last change is the invalid one
        this.changes.delete(this.moved);
        await this.post();
      }
      await this.refresh();
    } while (this.again);
    this.applying = false;
    if (!this.running) await this.score();
  }

  // ---- State and messages ----

  state() {
    const train = find("train"), {steps} = this, {losses} = this.curve, recent = losses.slice(-RECENT);
    train.textContent = this.running ? "Stop" : this.finished ? "Train again" : this.at ? "Continue" : "Train";
    train.setAttribute("aria-pressed", String(!!this.running));
    train.disabled = find("one").disabled = !this.ready || !this.info.trains;
    const loss = recent.length ? `: loss ${recent.at(-1).toFixed(4)}, mean of the last ${recent.length} ${mean(recent).toFixed(4)}` : "";
    find("state").textContent = `step ${this.at} of ${steps}${loss}`;
    if (find("losses").open) this.listLosses();
  }

  // Lists the columns of log.csv, the last step first.
  listLosses() {
    const {losses} = this.curve, last = losses.length, lines = ["step\tloss\ttrain_loss"];
    for (let step = last; step > Math.max(0, last - 200); --step) {
      lines.push(`${step}\t${losses[step - 1]}\t${mean(losses.slice(Math.max(0, step - RECENT), step))}`);
    }
    find("losses").querySelector("pre").textContent = lines.join("\n");
  }

  // Shows the error message next to the form that caused it; null: clears it.
  told(error, name = "fault") {
    const place = this.places[name];
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
      getSelection().selectAllChildren(find("command"));  // selects the text, so that the user can copy it
    }
  }
}

// Examples of the test set are requested by number, because their answers are then known. Other inputs are sent unchanged.
const asked = (example) => (example.example === undefined ? example.input : {example: example.example});

// ---- Start ----

// The engine contains the module. It is a separate script, so that the browser shows the page before it loads.
const started = () =>
  new Promise((done, failed) => {
    const script = make("script", {src: "lab-engine.js"});
    script.onload = () => {
      const engine = new Engine();
      engine.ready.then(() => done(engine), failed);
    };
    script.onerror = () => failed(new Error("lab-engine.js: cannot load this file of the site; reload the page"));
    document.head.append(script);
  });

async function begin() {
  for (const part of document.querySelectorAll(".live")) part.hidden = false;
  for (const part of document.querySelectorAll(".still")) part.hidden = true;
  // Focuses the train button, so that Enter starts the training.
  if (document.activeElement === document.body) find("train").focus({preventScroll: true});
  // A mixer in the address is a setting for this script. Without the script, it is an anchor in the list of mixers.
  if (location.hash.includes("=")) {
    for (const place of document.querySelectorAll(".choices [id]")) place.removeAttribute("id");
    scrollTo(0, 0);
    addEventListener("load", () => scrollTo(0, 0));
  }
  const wait = (find("train").onclick = () => (wait.wanted = true));
  try {
    const lab = new Lab(await started());
    await lab.openAddress();
    if (wait.wanted) lab.train();
  } catch (error) {
    find("fault").hidden = false;
    find("fault").textContent = error.message;
  }
}
begin();
