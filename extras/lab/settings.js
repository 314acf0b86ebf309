// The form of the settings, and the command line with the same settings. The command line omits settings that the
// recipe of the task already contains.

// Per task: the recipe, as values of the fields of the form, and flags for a network that is small enough for a page.
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

class Settings {
  // changed(): called if a setting of the network has changed.
  constructor(form, changed) {
    this.form = form;
    this.changed = changed;
    this.own = false;  // true: one mixer field per layer
    this.field = (name) => form.elements[name];
    form.onsubmit = (event) => event.preventDefault();
    form.onchange = ({target}) => {
      if (target.name === "task") this.take(TASKS[target.value].recipe);
      if (target.name === "mixer") this.own = target.value === "own";
      const needs = target.name === "mixer" && NEEDS[target.value];
      if (needs?.positions) this.field("positions").value = needs.positions;
      this.showLayers();
      history.replaceState(null, "", this.address());
      this.changed();
    };
    this.fromAddress();
  }

  take(values) {
    this.own = false;
    for (const [name, value] of Object.entries(values)) this.field(name).value = value;
  }

  // lab.html#mixer=dot&task=sort
  fromAddress() {
    const wanted = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const task = TASKS[wanted.task] ? wanted.task : "sort";
    this.field("task").value = task;
    this.take({...TASKS[task].recipe, ...NEEDS[wanted.mixer]?.positions && {positions: NEEDS[wanted.mixer].positions}});
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
  }

  // Returns the address with the settings, to share them.
  address() {
    const told = {task: this.task, mixer: this.mixers.join(",")}, {recipe} = TASKS[this.task];
    for (const name of ["layers", "heads", "channels", "positions", "optimizer"]) {
      if (this.field(name).value !== String(recipe[name])) told[name] = this.field(name).value;
    }
    if (this.field("more").value) told.more = this.field("more").value;
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

  // Returns the arguments of build/train.
  flags() {
    const task = TASKS[this.task], flags = ["--task", this.task, ...task.flags];
    const names = ["layers", "heads", "channels", "positions", "optimizer"];
    const said = (name, value, recipe) => task.always || value !== String(recipe);
    const mixer = this.mixers.join(",");
    if (said("mixer", mixer, task.recipe.mixer)) flags.push("--mixer", mixer);
    for (const name of names) {
      const value = this.field(name).value;
      if (said(name, value, task.recipe[name])) flags.push("--" + name, value);
    }
    for (const name of new Set(this.mixers)) flags.push(...(NEEDS[name]?.flags ?? []));
    return [...flags, ...this.field("more").value.split(/\s+/).filter(Boolean)];
  }
}
