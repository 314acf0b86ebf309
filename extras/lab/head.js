// Enlarged view of one head: its map with a selectable cell, the equation with the values of this cell, and controls that
// switch the head off, make its weights uniform, or change a logit or an entry of its metric.

// Tags of the score equations of attention whose score is not the product of a query and a key.
const COMPARED = {
  bahdanau: ["bahdanau_attention.1", "bahdanau_attention.5"],
  transformer_xl: ["relative_attention.1", "relative_attention.5"],
  lsh: ["lsh_attention.7", "lsh_attention.11"],
};

class Head {
  // touch(key, change): sets the change with this key; null removes it.
  constructor(place, touch) {
    this.place = place;
    this.touch = touch;
    this.cell = [0, 0];
    this.map = make("canvas");
    this.across = make("div", {class: "axis across", "aria-hidden": "true"});
    this.down = make("div", {class: "axis down", "aria-hidden": "true"});
    this.numbers = make("div", {class: "told", "aria-live": "polite"});
    this.title = make("h3");
    this.tools = make("div", {class: "tools"});
    this.frame = make("div", {class: "bigmap"}, this.across, this.down, this.map);
    const side = make("div", {class: "head-side"}, this.tools, this.numbers);
    place.replaceChildren(this.title, make("div", {class: "head-parts"}, this.frame, side));
    const shape = () => this.weights.extents.slice(1);
    choosable(this.map, "the map of this head; arrow keys choose a cell", shape, (row, column) => {
      this.cell = [row, column];
      this.fixed = true;
      this.draw();
    });
    colours.changed.push(() => this.seen && this.draw());
  }

  show(seen, info, choice, changes) {
    const other = !this.choice || ["layer", "name", "head"].some((key) => this.choice[key] !== choice[key]);
    Object.assign(this, {seen, info, choice, changes});
    this.weights = seen.array(choice.layer, choice.name);
    if (!this.weights) return;
    const [, C, S] = this.weights.extents;
    if (other || this.cell[0] >= C || this.cell[1] >= S) this.fixed = false;
    if (!this.fixed) this.cell = this.heaviest(C, S);
    const which = choice.name.match(/^(.*?)_?weight_/)[1], layer = layerName(choice.layer, info);
    this.title.textContent = `${layer[0].toUpperCase()}${layer.slice(1)}, head ${choice.head}${which ? ` of pooling ${which}` : ""}`;
    const tools = JSON.stringify([choice, C, info.command, this.logits()?.name]);
    if (tools !== this.toolsFor) this.buildTools();
    this.toolsFor = tools;
    this.draw();
  }

  // Returns the cell with the largest weight in the last row that has a target.
  heaviest(C, S) {
    const {targets} = this.seen, asked = targets?.findLastIndex?.((target) => target !== null) ?? -1;
    const row = asked >= 0 && asked < C ? asked : C - 1;
    const looks = this.weights.part(this.choice.head).subarray(row * S, row * S + S);
    return [row, looks.indexOf(Math.max(...looks))];
  }

  logits() {
    return isPooling(this.choice.layer, this.info) ? this.seen.logitsOf(this.weights) : undefined;
  }

  draw() {
    const [, C, S] = this.weights.extents, map = this.weights.part(this.choice.head), [c, s] = this.cell;
    paint(this.map, map, C, S, {signed: false, largest: 1});
    const {tokens} = this.seen;
    const mark = (axis, count, at) => {
      const named = count <= 40 ? tokens.slice(0, count) : [];
      axis.replaceChildren(...named.map((token) => make("span", {}, shownToken(token).slice(0, 9))));
      axis.children[at]?.classList.add("at");
    };
    this.across.classList.toggle("words", tokens.some((token) => token.length > 2));
    mark(this.across, S, s);
    mark(this.down, C, c);
    this.frame.style.setProperty("--row", c / C);
    this.frame.style.setProperty("--column", s / S);
    this.frame.style.setProperty("--rows", C);
    this.frame.style.setProperty("--columns", S);
    this.numbers.replaceChildren(...this.told(c, s, map[c * S + s]));
    this.showTools();
  }

  // ---- The equation with its values ----

  told(c, s, weight) {
    const token = (at) => `“${shownToken(this.seen.tokens[at] ?? "")}”`;
    const said = `Query ${c} (${token(c)}) attends to key ${s} (${token(s)}) with the weight ${percent(weight, 1)}.`;
    const what = make("p", {class: "what"}, said);
    if (!(weight > 0)) return [what, make("p", {}, "The attention mask excludes this key.")];
    return [what, ...(this.isAttention() ? this.ofAttention(c, s, weight) : this.ofPooling(c, s, weight))];
  }

  isAttention() {
    return ["query_bch", "lse_bnc"].every((name) => this.seen.array(this.choice.layer, name));
  }

  row(name, at) {
    const array = this.seen.array(this.choice.layer, name);
    if (!array) return undefined;
    const width = array.extents.at(-1), N = this.weights.extents[0], K = width / N;
    return array.values.subarray(at * width + this.choice.head * K, at * width + (this.choice.head + 1) * K);
  }

  ofAttention(c, s, weight) {
    const lse = this.seen.array(this.choice.layer, "lse_bnc").part(this.choice.head)[c];
    const own = COMPARED[blockOf(this.choice.layer, this.info)];
    if (own) {
      const shares = `e^(${decimal(Math.log(weight) + lse)} − ${decimal(lse)}) = ${decimal(weight)}`;
      return [
        ...own.map((tag) => equation(tag, true)),
        this.line(Number.isFinite(lse) ? shares : "This query attends to no other key, so its output is its own value."),
        ...this.adds(weight, this.row("value_bch", s), "value"),
      ];
    }
    const query = this.row("query_bch", c), key = this.row("key_bch", s), K = query.length;
    const rescale = +(this.info.settings?.rescale ?? 0), scale = rescale > 0 ? rescale / K : 1 / Math.sqrt(K);
    let sum = 0;
    const products = Array.from(query, (q, k) => {
      sum += q * key[k];
      return `${decimal(q, 2)} · ${decimal(key[k], 2)}`;
    });
    const score = scale * sum, bias = Math.log(weight) + lse - score, biased = Number.isFinite(bias) && Math.abs(bias) > 2e-3;
    const sign = bias < 0 ? "−" : "+";
    const factor = rescale > 0 ? `${rescale} / ${K}` : `1/√${K}`;
    return [
      equation("attention.1"),
      this.line(`${factor} (${products.join(" + ")}) = ${decimal(score)}`),
      ...(biased ? [this.line(`${decimal(score)} ${sign} ${decimal(Math.abs(bias))} (distance bias) = ${decimal(score + bias)}`)] : []),
      equation("attention.5", true),
      this.line(`e^(${decimal(biased ? score + bias : score)} − ${decimal(lse)}) = ${decimal(weight)}`),
      ...this.adds(weight, this.row("value_bch", s) ?? this.row("p_bch", s), "value"),
    ];
  }

  ofPooling(c, s, weight) {
    const logits = this.logits();
    if (!logits) return [equation("pooling.1", true), this.line(`All weights are equal: ${decimal(weight)}`)];
    const row = logits.part(this.choice.head), map = this.weights.part(this.choice.head), S = this.weights.extents[2];
    const seen = [...row.keys()].filter((at) => map[c * S + at] > 0), most = Math.max(...seen.map((at) => row[at]));
    const sum = seen.reduce((all, at) => all + Math.exp(row[at] - most), 0), found = Math.exp(row[s] - most) / sum;
    const lines = [equation("pooling.1", true)];
    const exact = `e^(${decimal(row[s], 3)} − ${decimal(most, 3)}) / ${decimal(sum, 3)} = ${decimal(weight)}`;
    const near = Math.abs(found - weight) < 1e-3;
    lines.push(this.line(near ? exact : `The logit ${decimal(row[s], 3)} and the distance decay give the weight ${decimal(weight)}.`));
    return lines;
  }

  // Draws the product of a weight and a value, which is a term of the output, as a strip of channels.
  adds(weight, value, name) {
    if (!value) return [];
    const strip = make("canvas", {class: "vector", role: "img", "aria-label": `${name} of the position, ${value.length} channels`});
    paint(strip, value, 1, value.length);
    const added = make("canvas", {class: "vector", role: "img", "aria-label": "its contribution to the output"});
    paint(added, value.map((x) => weight * x), 1, value.length, {largest: largestOf(value)});
    return [make("p", {class: "values"}, `${decimal(weight, 3)} × `, strip, " = ", added)];
  }

  line(text) {
    return make("p", {class: "values"}, text);
  }

  // ---- Changes of the head ----

  // Returns the key of a change of this head.
  key(what) {
    return `${this.choice.layer} ${this.choice.name} ${this.choice.head} ${what}`;
  }

  buildTools() {
    const {layer, head} = this.choice, {positions, span} = this.info.settings;
    // The distance bias remains if the weights are made uniform.
    const even = positions === "alibi" || +span > 0 ? "uniform, with distance bias" : "uniform";
    const options = [["unchanged", null], ["off", "off"], [even, "uniform"]].map(([text, what]) => {
      const input = make("input", {type: "radio", name: "touch"});
      input.onchange = () => this.touch(this.key("head"), what && {layer, head, what});
      return make("label", {}, input, text);
    });
    this.modes = options.map((label) => label.firstChild);
    const modes = make("fieldset", {class: "modes"}, make("legend", {}, "This head"), ...options);
    this.tools.replaceChildren(modes, ...this.logitTools(), ...this.metricTools());
  }

  // One slider per logit.
  logitTools() {
    this.sliders = [];
    const logits = this.logits();
    if (!logits || logits.extents.length !== 2 || logits.extents[1] > 64) return [];
    const {layer, head} = this.choice, place = make("div", {class: "sliders", role: "group", "aria-label": "logits"});
    for (let c = 0; c < logits.extents[1]; ++c) {
      const input = make("input", {type: "range", min: -8, max: 8, step: 0.1, class: "upright"});
      input.setAttribute("aria-label", `logit of position ${c}`);
      const number = make("output"), its = {layer, head, array: logits.name, index: [0, head, c]};
      input.oninput = () => this.touch(this.key(`logit ${c}`), {...its, value: +input.value});
      this.sliders.push({input, number});
      place.append(make("label", {}, number, input, make("span", {}, shownToken(this.seen.tokens[c] ?? ""))));
    }
    return [make("p", {class: "note"}, "Move a slider to change a logit. A logit sets the weight of its position in every later average."), place];
  }

  // The metric of the head with editable entries, and the distances under this metric.
  metricTools() {
    this.metric = undefined;
    const array = this.seen.array(this.choice.layer, "metric_nkk");
    if (!array) return [];
    const {layer, head} = this.choice, K = array.extents.at(-1);
    const picture = make("canvas", {class: "metric"}), said = make("output", {class: "values"});
    const slider = make("input", {type: "range", step: 0.01, class: "entry"});
    const distances = make("canvas", {class: "metric", role: "img"});
    distances.setAttribute("aria-label", "squared distances between positions under this metric");
    this.metric = {picture, slider, said, distances, at: [0, 0], K};
    choosable(picture, "the metric of this head; arrow keys choose an entry", () => [K, K], (row, column) => {
      this.metric.at = [row, column];
      this.showTools();
    });
    slider.setAttribute("aria-label", "the chosen entry of the metric");
    slider.oninput = () => {
      const [k, l] = this.metric.at;
      this.touch(this.key(`metric ${k} ${l}`), {layer, head, array: "metric_nkk", index: [head, k, l], value: +slider.value});
    };
    return [
      make("p", {class: "note"}, "The first picture is the metric M. Choose an entry, and change it with the slider. The second picture shows the squared distances between positions."),
      make("div", {class: "metrics"}, picture, distances),
      make("label", {class: "entry"}, said, slider),
    ];
  }

  showTools() {
    const change = this.changes.get(this.key("head"))?.what ?? null;
    this.modes.forEach((input, i) => (input.checked = [null, "off", "uniform"][i] === change));
    const logits = this.logits();
    this.sliders.forEach(({input, number}, c) => {
      const value = logits.part(this.choice.head)[c];
      if (document.activeElement !== input || !this.changes.has(this.key(`logit ${c}`))) input.value = value;
      number.textContent = decimal(value, 1);
      input.setAttribute("aria-valuetext", decimal(value, 1));
    });
    if (this.metric) this.showMetric();
  }

  showMetric() {
    const {picture, slider, said, distances, at: [k, l], K} = this.metric;
    const M = this.seen.array(this.choice.layer, "metric_nkk").part(this.choice.head), largest = Math.max(largestOf(M), 0.01);
    paint(picture, M, K, K);
    slider.max = (3 * largest).toFixed(2);
    slider.min = (-3 * largest).toFixed(2);
    if (document.activeElement !== slider) slider.value = M[k * K + l];
    said.textContent = `M ${k}, ${l} = ${decimal(M[k * K + l], 3)}`;
    const C = this.weights.extents[1], rows = Array.from({length: C}, (_, c) => this.row("p_bch", c));
    if (!rows[0]) return;
    const squares = new Float32Array(C * C);
    for (let c = 0; c < C; ++c) {
      for (let s = 0; s < C; ++s) {
        const apart = rows[c].map((x, k) => x - rows[s][k]);
        let square = 0;
        for (let i = 0; i < K; ++i) for (let j = 0; j < K; ++j) square += apart[i] * M[i * K + j] * apart[j];
        squares[c * C + s] = square;
      }
    }
    paint(distances, squares, C, C);
  }
}
