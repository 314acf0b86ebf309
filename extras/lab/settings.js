// The settings form and the command line with the same settings. The command line omits the default settings of the task.

// Per task: the default settings (recipe) as values of the form, and flags for a network that is small enough for a page.
const TASKS = {
  sort: {
    recipe: {mixer: "dot", layers: 3, heads: 3, channels: 48, positions: "learned", optimizer: "adamw"},
    flags: [],
  },
  text: {
    recipe: {mixer: "additive", layers: 2, heads: 4, channels: 64, positions: "alibi", optimizer: "muon"},
    always: true,  // the preset of the task text is larger
    flags: ["--data", "text.txt", "--context", "48", "--batch", "8", "--steps", "1500"],
  },
  reviews: {
    recipe: {mixer: "dot", layers: 1, heads: 4, channels: 64, positions: "learned", optimizer: "adamw"},
    flags: [],
  },
  digits: {
    recipe: {mixer: "dot", layers: 2, heads: 4, channels: 64, positions: "learned", optimizer: "adamw"},
    flags: [],
  },
};
// The positions and flags that a mixer requires.
const NEEDS = {
  transformer_xl: {positions: "none", flags: ["--segment", "6", "--memory", "6"]},
  lsh: {flags: ["--lsh-rounds", "2", "--lsh-buckets", "8", "--lsh-piece", "8"]},
};
// Fields with an optional flag; an empty field means the default.
const FURTHER = {dropout: "dropout", decay: "weight-decay"};
// Number of training examples per task, to compute shares. The task digits draws examples without end, so its share refers
// to the examples of one run.
const TRAINING = {sort: 561, reviews: 20000};
// Explanations for mixers that cannot learn a task, from docs/results/tasks.md and cpu_mixers.md.
const CANNOT = {
  identity: {
    sort: "identity cannot sort: no position receives information from other positions. Each answer depends only on the last digit and its position.",
    text: "identity cannot learn words: a prediction depends only on the last character, so the network learns pairs of characters.",
    reviews: "identity cannot learn negation: no word receives information from other words, so “good” has the same effect in “not good”.",
    digits: "identity cannot compare patches: no patch of the picture receives information from other patches.",
  },
  average: {
    text: "average does not distinguish recent characters from earlier ones: all earlier characters have the same weight.",
    reviews: "average classifies at most 71 % of the reviews correctly without a convolution: the average does not depend on which word follows “not”.",
  },
};

class Settings {
  // changed(): called when a setting of the network has changed.
  constructor(form, changed) {
    this.form = form;
    this.changed = changed;
    this.own = false;  // true: one mixer field per layer
    this.field = (name) => form.elements[name];
    form.onsubmit = (event) => event.preventDefault();
    form.onchange = ({target}) => {
      if (target.name === "task") this.takeTask(target.value);
      if (target.name === "mixer") this.own = target.value === "own";
      if (target.name === "positions") this.replaced = undefined;
      this.showLayers();
      if (target.name !== "positions") this.takeNeeds();
      history.replaceState(null, "", this.address());
      this.changed();
    };
    this.fromAddress();
  }

  // Sets all fields to the recipe of a task.
  takeTask(task) {
    this.own = false;
    this.replaced = undefined;
    const values = {task, ...TASKS[task].recipe, share: 1, noise: 0, dropout: "", decay: "", more: ""};
    for (const [name, value] of Object.entries(values)) this.field(name).value = value;
  }

  // Sets the positions that a mixer requires. A mixer without a requirement restores the chosen positions.
  takeNeeds() {
    const field = this.field("positions"), needed = this.mixers.map((name) => NEEDS[name]?.positions).find(Boolean);
    if (needed) this.replaced ??= field.value;
    if (needed ?? this.replaced) field.value = needed ?? this.replaced;
    if (!needed) this.replaced = undefined;
  }

  // Values of all fields, to restore them later.
  get state() {
    return Object.fromEntries([...this.form.elements].filter(({name}) => name).map(({name, value}) => [name, value]));
  }
  set state(values) {
    this.own = values.mixer === "own";
    for (const name of Object.keys(values)) if (this.field(name)) this.field(name).value = values[name];
    this.showLayers();
    for (const name of Object.keys(values)) if (this.field(name)) this.field(name).value = values[name];
  }

  // lab.html#mixer=dot&task=sort
  fromAddress(address = location.hash.slice(1)) {
    const wanted = Object.fromEntries(new URLSearchParams(address));
    this.takeTask(TASKS[wanted.task] ? wanted.task : "sort");
    for (const [name, value] of Object.entries(wanted)) {
      const field = name !== "task" && this.field(name);
      if (!field || (field.options && ![...field.options].some((option) => option.value === value))) continue;
      field.value = value;
    }
    const mixers = wanted.mixer?.split(",") ?? [];
    this.own = mixers.length > 1;
    if (this.own) this.field("mixer").value = "own";
    this.showLayers();
    find("mixers").querySelectorAll("select").forEach((select, layer) => (select.value = mixers[layer] ?? select.value));
    this.takeNeeds();
  }

  // Returns the address with the settings, to share them.
  address() {
    const told = {task: this.task, mixer: this.mixers.join(",")}, {recipe} = TASKS[this.task];
    for (const name of ["layers", "heads", "channels", "positions", "optimizer"]) {
      if (this.field(name).value !== String(recipe[name])) told[name] = this.field(name).value;
    }
    for (const [name, usual] of [["share", "1"], ["noise", "0"], ["dropout", ""], ["decay", ""], ["more", ""]]) {
      if (this.field(name).value !== usual) told[name] = this.field(name).value;
    }
    return "#" + new URLSearchParams(told).toString().replaceAll("%2C", ",");
  }

  // Shows one mixer field per layer if the layers have different mixers.
  showLayers() {
    const place = find("mixers"), count = Math.min(12, Math.max(1, +this.field("layers").value || 1));
    place.hidden = !this.own;
    if (!this.own) return place.replaceChildren();
    const names = [...this.field("mixer").options].map((option) => option.value).filter((name) => name !== "own");
    const before = [...place.querySelectorAll("select")].map((select) => select.value);
    place.replaceChildren(...Array.from({length: count}, (_, layer) => {
      const select = make("select", {name: `mixer${layer}`, "aria-label": `mixer of layer ${layer}`});
      select.append(...names.map((name) => make("option", {}, name)));
      select.value = before[layer] ?? TASKS[this.task].recipe.mixer;
      return select;
    }));
  }

  get task() {
    return this.field("task").value;
  }

  get mixers() {
    const fields = this.own ? [...find("mixers").querySelectorAll("select")] : [this.field("mixer")];
    return fields.map((field) => field.value);
  }

  // Returns the explanation if the mixer cannot learn the task, otherwise "".
  cannot() {
    const [mixer, ...others] = new Set(this.mixers);
    const convolves = /--conv-kernel [^0]/.test(this.field("more").value);
    return others.length || convolves ? "" : CANNOT[mixer]?.[this.task] ?? "";
  }

  // Returns the restrictions of the data, for which train has no flags: the number of batches that repeat (0: no restriction)
  // and the share of random labels. characters: length of the text.
  limits({batch, context, steps}, characters) {
    const share = +this.field("share").value, noise = +this.field("noise").value;
    const examples = this.task === "text" ? 0.9 * characters / context : TRAINING[this.task] ?? steps * batch;
    return {batches: share < 1 ? Math.max(1, Math.round(share * examples / batch)) : 0, noise};
  }

  // Returns the arguments of build/train. data: file name of the text.
  flags(data) {
    const task = TASKS[this.task], more = this.field("more").value.split(/\s+/).filter(Boolean), flags = ["--task", this.task];
    // Flags from the text field replace flags of the task.
    for (let i = 0; i < task.flags.length; i += 2) {
      const [flag, value] = task.flags.slice(i, i + 2);
      if (!more.includes(flag)) flags.push(flag, value === "text.txt" ? data : value);
    }
    const names = ["layers", "heads", "channels", "positions", "optimizer"];
    const said = (name, value, recipe) => task.always || value !== String(recipe);
    const mixer = this.mixers.join(",");
    if (said("mixer", mixer, task.recipe.mixer)) flags.push("--mixer", mixer);
    for (const name of names) {
      const value = this.field(name).value;
      if (said(name, value, task.recipe[name])) flags.push("--" + name, value);
    }
    for (const [name, flag] of Object.entries(FURTHER)) {
      if (this.field(name).value) flags.push("--" + flag, this.field(name).value);
    }
    for (const name of new Set(this.mixers)) flags.push(...(NEEDS[name]?.flags ?? []));
    return [...flags, ...more];
  }
}
