// Gradients of every array and every weight, from the loss to the embedding, layer by layer. Each has its equation.

class Backward {
  // read(name, "gradients"): reads the gradient of a weight for the last inspected input from the engine.
  constructor(place, read) {
    this.read = read;
    this.list = place.querySelector(".chain");
    this.play = place.querySelector("button");
    this.large = new Large(place.querySelector(".large"));
    this.play.onclick = () => this.run();
    colours.changed.push(() => this.seen && this.show(this.seen, this.info));
  }

  show(seen, info) {
    Object.assign(this, {seen, info});
    const found = [this.ofLogits(), ...seen.gradients].filter(Boolean);
    for (const one of found) if (one.name.startsWith("d_logits")) one.layer = "cross_entropy";
    const key = JSON.stringify([info.command, found.map((one) => [one.layer, one.name, one.extents])]);
    if (key !== this.key) this.build(found);
    this.key = key;
    found.forEach((one, i) => this.fill(this.rows[i], one));
    this.showWeights();
  }

  // Gradient of the logits: the probabilities minus the one-hot target (cross_entropy.5), in rows that have a target.
  ofLogits() {
    const {seen} = this;
    if (!Number.isFinite(seen.loss) || seen.gradients.some((one) => one.name.startsWith("d_logits"))) return undefined;
    const V = seen.outputs.length, values = seen.probabilities.slice(), C = values.length / V;
    const asked = seen.targets.filter((target) => target !== null).length;
    seen.targets.forEach((target, r) => {
      for (let v = 0; v < V; ++v) {
        const i = r * V + v;
        values[i] = target === null ? 0 : (values[i] - (seen.outputs[v] === target ? 1 : 0)) / asked;
      }
    });
    return {layer: "cross_entropy", name: "d_logits_bcv", extents: [C, V], values};
  }

  fill(row, one) {
    row.values = one.values;
    row.mean = Math.sqrt(one.values.reduce((sum, value) => sum + value * value, 0) / one.values.length);
    paint(row.canvas, one.values, ...folded(one.extents));
    const most = Math.max(...this.rows.map(({mean}) => mean ?? 0));
    for (const {norm, mean} of this.rows) {
      norm.style.setProperty("--share", mean > 0 ? Math.max(0, 1 + Math.log10(mean / most) / 5) : 0);
    }
    row.norm.title = `root mean square: ${decimal(row.mean, 6)}`;
    if (this.chosen === row) this.enlarge(row);
  }

  build(found) {
    this.chosen = undefined;
    this.large.place.hidden = true;
    const add = ({layer, name, extents}, weight) => {
      const tag = tagOf(blockOf(layer, this.info), name), row = {layer, name, extents, weight, tag};
      const shape = extents.filter((extent, i) => i || extent !== 1).join(" × ");
      Object.assign(row, pictured(name, shape, () => this.enlarge(row), ""));
      row.norm = make("span", {class: "meter size"});
      const above = name === "d_out_bcd" && make("p", {class: "note"}, "computed by the next block");
      row.item = make("li", {}, row.place, row.norm, tag || !above ? equation(tag) : above);
      return row;
    };
    this.rows = found.map((one) => add(one));
    // The weights of a layer come after its arrays. Layers without arrays come in order from the last to the first.
    const weights = this.info.weights.map(({name, extents}) => {
      const at = name.lastIndexOf(".");
      return add({layer: name.slice(0, at), name: `d_${name.slice(at + 1)}`, extents}, name);
    });
    const order = [...new Set([...this.rows.map(({layer}) => layer), ...weights.map(({layer}) => layer).reverse()])];
    const ends = {classifier: 0.3, final_norm: 0.6, embedding: order.length}, first = [...order];
    const place = (layer) => ends[layer] ?? first.indexOf(layer);
    order.sort((a, b) => place(a) - place(b));
    this.rows = order.flatMap((layer) => [...this.rows, ...weights].filter((row) => row.layer === layer));
    // The arrays come first, in the order of `found`, which show() needs. Weights are read when their layer is open.
    this.rows.sort((a, b) => !!a.weight - !!b.weight);
    this.weights = this.rows.filter(({weight}) => weight);
    this.groups = order.map((layer, i) => {
      const mine = this.rows.filter((row) => row.layer === layer);
      const title = make("summary", {}, layerName(layer, this.info));
      const details = make("details", {open: i < 3}, title, make("ol", {}, ...mine.map(({item}) => item)));
      details.ontoggle = () => this.showWeights(true);
      return {details, mine};
    });
    this.list.replaceChildren(...this.groups.map(({details}) => make("li", {}, details)));
    this.showWeights(true);
  }

  // Reads the weight gradients of open layers, at most once in 1.5 seconds unless `now` is true.
  async showWeights(now = false) {
    if (this.reading || !Number.isFinite(this.seen.loss) || (!now && performance.now() - (this.last ?? 0) < 1500)) return;
    this.reading = true;
    this.last = performance.now();
    try {
      for (const row of this.weights.filter(({item}) => item.closest("details").open)) {
        const {values} = await this.read(row.weight, "gradients");
        this.fill(row, {values, extents: row.extents});
      }
    } catch {
      // Another network was opened during the request.
    } finally {
      this.reading = false;
    }
  }

  enlarge(row) {
    if (!row.values) return;
    this.chosen = row;
    this.large.show(row.name, row.extents, row.values, row.tag);
  }

  // Highlights the steps of the chain rule one after the other, or all at once if the user prefers reduced motion.
  async run() {
    if (!this.groups) return;
    const mine = (this.running = {}), steps = this.groups.flatMap((group) => group.mine.map((row) => ({...group, row})));
    for (const {row} of steps) row.item.classList.toggle("reached", calm.matches);
    if (calm.matches) return;
    for (const {row, details} of steps) {
      if (this.running !== mine) return;
      details.open = true;
      row.item.classList.add("reached");
      row.item.scrollIntoView({block: "nearest"});
      await pause(140);
    }
  }
}
