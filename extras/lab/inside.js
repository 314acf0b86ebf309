// Every array of a layer from the forward pass, and weights and gradients by name.

// A button with a small picture of an array, its name and its shape, and a link to the equation that computes it.
function pictured(name, shape, chosen, tag) {
  const canvas = make("canvas", {"aria-hidden": "true"}), words = [["name", name], ["shape", shape]];
  const button = make("button", {type: "button", class: "array"}, canvas);
  button.append(...words.map(([kind, text]) => make("span", {class: kind}, text)));
  button.onclick = chosen;
  return {canvas, button, place: make("div", {class: "pictured"}, button, ...tagLink(tag))};
}

// Enlarged view of an array, with a selectable element and the equation that computes the array.
class Large {
  constructor(place) {
    this.place = place;
    this.canvas = make("canvas");
    this.said = make("p", {class: "values", "aria-live": "polite"});
    this.head = make("div");
    this.at = [0, 0];
    choosable(this.canvas, "the array, enlarged; arrow keys choose an element", () => this.shape, (row, column) => {
      this.at = [row, column];
      this.tell();
    });
    place.append(this.head, this.canvas, this.said);
    place.hidden = true;
  }

  // tag: tag of the equation that computes the array.
  show(name, extents, values, tag) {
    const other = name !== this.name;
    Object.assign(this, {name, extents, values, shape: folded(extents)});
    this.place.hidden = false;
    if (other) {
      this.at = [0, 0];
      this.head.replaceChildren(make("h3", {}, name), ...(tag ? [equation(tag)] : []));
    }
    paint(this.canvas, values, ...this.shape, {signed: !/weight_b?ncs$/.test(name)});
    this.canvas.style.setProperty("--ratio", this.shape[1] / this.shape[0]);
    this.tell();
  }

  tell() {
    const [row, column] = this.at, [rows, columns] = this.shape;
    const at = rows > 1 ? `row ${row}, column ${column}` : `element ${column}`;
    const norm = Math.sqrt(this.values.reduce((sum, value) => sum + value * value, 0));
    const value = decimal(this.values[row * columns + column], 5), largest = decimal(largestOf(this.values));
    this.said.textContent = `${at}: ${value}. Largest magnitude ${largest}, norm ${decimal(norm)}.`;
  }
}

class Inside {
  // read(name, arena): reads weights, gradients or moments from the engine.
  constructor(place, read) {
    this.read = read;
    this.layers = place.querySelector(".layers");
    this.arrays = place.querySelector(".arrays");
    this.large = new Large(place.querySelector(".large"));
    this.arena = place.querySelector("[name=arena]");
    this.weights = place.querySelector(".weights");
    this.arena.onchange = () => this.showWeights(true);
    this.weights.closest("details").ontoggle = () => this.showWeights(true);
    colours.changed.push(() => this.seen && this.show(this.seen, this.info));
  }

  show(seen, info) {
    Object.assign(this, {seen, info});
    if (!seen.layers.includes(this.layer)) this.layer = seen.layers.find((layer) => /mixer/.test(layer)) ?? seen.layers[0];
    const key = JSON.stringify([info.command, seen.layers, seen.arrays.map((one) => [one.name, one.extents])]);
    if (key !== this.key) this.build();
    this.key = key;
    for (const {one, canvas} of this.shown) {
      const array = this.seen.array(one.layer, one.name);
      paint(canvas, array.values, ...folded(array.extents), {signed: !/weight_b?ncs$/.test(one.name)});
    }
    if (this.chosen) this.enlarge(this.chosen);
    this.showWeights();
  }

  build() {
    this.layers.replaceChildren(...this.seen.layers.map((layer) => {
      const button = make("button", {type: "button", "aria-pressed": String(layer === this.layer)}, layerName(layer, this.info));
      button.onclick = () => {
        this.layer = layer;
        this.key = undefined;
        this.chosen = undefined;
        this.show(this.seen, this.info);
        this.layers.querySelector("[aria-pressed=true]").focus();
      };
      return button;
    }));
    const mine = this.seen.arrays.filter((one) => one.layer === this.layer);
    const tag = ({layer, name}) => tagOf(blockOf(layer, this.info), name);
    this.shown = mine.map((one) => ({one, ...pictured(one.name, one.shape, () => this.enlarge(one), tag(one))}));
    this.arrays.replaceChildren(...this.shown.map(({place}) => place));
    this.buildWeights();
  }

  enlarge({layer, name}) {
    const array = this.seen.array(layer, name);
    if (!array) return;
    this.chosen = {layer, name};
    this.large.show(name, array.extents, array.values, tagOf(blockOf(layer, this.info), name));
  }

  // ---- Weights ----

  buildWeights() {
    if (this.weights.dataset.for === this.info.command) return;
    this.weights.dataset.for = this.info.command;
    this.pictures = this.info.weights.map(({name, extents}) => {
      const layer = name.replace(/\.?[^.]*$/, ""), own = name.split(".").at(-1);
      const {canvas, button} = pictured(`${layerName(layer, this.info)}: ${own}`, extents.join(" × "), async () => {
        const {values} = await this.read(name, this.arena.value);
        this.chosen = undefined;
        const of = this.arena.value === "gradients" ? `d_${own}` : own;
        this.large.show(of, extents, values, tagOf(blockOf(layer, this.info), of));
        this.large.place.scrollIntoView({block: "nearest"});
      });
      button.title = name;
      return {name, extents, canvas, button};
    });
    this.weights.replaceChildren(...this.pictures.map(({button}) => button));
    this.showWeights(true);
  }

  // Reads the arrays one after the other while the list is visible, at most once in 1.5 seconds unless `now` is true.
  async showWeights(now = false) {
    if (!this.pictures || this.reading || !this.weights.checkVisibility()) return;
    if (!now && performance.now() - (this.read_ ?? 0) < 1500) return;
    this.reading = true;
    this.read_ = performance.now();
    try {
      for (const {name, extents, canvas} of this.pictures) {
        const {values} = await this.read(name, this.arena.value);
        paint(canvas, values, ...folded(extents));
      }
    } catch {
      // Another network was opened during the request, or this network has no such numbers yet.
    } finally {
      this.reading = false;
    }
  }
}
