// Decomposes a logit into a sum of terms, back through the residual stream, mixers and feed-forward blocks to the inputs. Or
// follows an input forward, to the positions that attend to it. A norm is linear if its standard deviation is held constant.
// Every number is then a sum of products of a fixed row and a row of an array, and its terms add up to it exactly.

const PARTS = 8;  // number of terms shown per sum
const EPSILON = 1e-5;  // epsilon of layernorm

const product = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const length = (row) => Math.sqrt(product(row, row));

class Follow {
  // read(name, arena): reads weights from the engine.
  constructor(place, read) {
    this.read = read;
    this.field = (name) => place.querySelector(`[name=${name}]`);
    this.list = place.querySelector(".steps");
    this.path = [];
    for (const name of ["way", "at", "output"]) {
      this.field(name).onchange = () => {
        this.path = [];
        this.draw();
      };
    }
  }

  show(seen, info) {
    const other = this.info !== info || this.seen?.tokens.join() !== seen.tokens.join();
    Object.assign(this, {seen, info});
    if (other) this.begin();
    return this.draw();
  }

  // Sets the fields for this input to the last position with a target, and to this target.
  begin() {
    const {seen} = this, isClassifier = seen.probabilities.length === seen.outputs.length;
    const options = (name, texts) => this.field(name).replaceChildren(...texts.map((text, i) => make("option", {value: i}, text)));
    options("at", seen.tokens.map((token, c) => `${c}: ${shownToken(token)}`));
    options("output", seen.outputs.map(shownToken));
    const row = seen.targets.findLastIndex((target) => target !== null), last = row < 0 ? seen.targets.length - 1 : row;
    const target = seen.targets[row] ?? seen.likeliest(last);
    this.field("at").value = isClassifier ? 0 : last;
    this.field("output").value = Math.max(0, seen.outputs.indexOf(target));
    this.path = [];
  }

  // ---- Numbers ----

  async weight(name) {
    if (!this.info.weights.some((one) => one.name === name)) return undefined;
    if (!this.cache.has(name)) this.cache.set(name, await this.read(name, "weights"));
    return this.cache.get(name).values;
  }

  row(layer, name, c) {
    const array = this.seen.array(layer, name);
    if (!array) return undefined;
    const width = array.extents.at(-1);
    return array.values.subarray(c * width, (c + 1) * width);
  }

  // Blocks in the order of computation. stream(j, c): residual stream before block j.
  get blocks() {
    return this.seen.layers.filter((layer) => /blocks\.\d+\.\w+$/.test(layer) && this.seen.array(layer, "out_bcd"));
  }
  stream(j, c) {
    return j ? this.row(this.blocks[j - 1], "out_bcd", c) : this.row("", "x_bcd", c);
  }
  added(j, c) {
    const before = this.stream(j, c);
    return this.stream(j + 1, c).map((x, d) => x - before[d]);
  }

  // Splits a row e times norm(x) into a row G times x and a constant.
  async throughNorm(e, x, prefix) {
    const weight = await this.weight(`${prefix}weight_d`), bias = await this.weight(`${prefix}bias_d`), center = mean([...x]);
    if (!weight) return {G: e, constant: 0};
    const rstd = 1 / Math.sqrt(mean([...x].map((value) => (value - center) ** 2)) + EPSILON);
    const G = Array.from(e, (value, d) => value * weight[d] * rstd), middle = mean(G);
    return {G: G.map((value) => value - middle), constant: bias ? product(e, bias) : 0};
  }

  // Returns the row with the elements sum over r of e_r matrix_rd. Its product with x is the product of e and matrix x.
  turned(e, matrix, width, first = 0) {
    const out = new Array(width).fill(0);
    e.forEach((value, r) => {
      for (let d = 0; d < width; ++d) out[d] += value * matrix[(first + r) * width + d];
    });
    return out;
  }

  // ---- Back from a logit ----

  async logit() {
    const {seen, info} = this, V = seen.outputs.length, v = +this.field("output").value, D = this.stream(0, 0).length;
    const isClassifier = seen.probabilities.length === V, c = +this.field("at").value, last = this.blocks.length;
    const table = info.weights.find(({name}) => /classifier\.weight_od$|decoder\.logit_vd$/.test(name)) ?? info.weights.find(({name}) => /token_vd$/.test(name));
    const bias = (await this.weight("classifier.bias_o")) ?? (await this.weight("logit_bias_v"));
    const scale = isClassifier ? 1 : +(info.settings["logit-scale"] ?? 1) || 1;
    const all = seen.arrays.find(({name}) => name === "logits_rv").values;
    const e = Array.from((await this.weight(table.name)).subarray(v * D, (v + 1) * D), (x) => scale * x);
    const name = `The logit of “${shownToken(seen.outputs[v])}”`, constant = (bias?.[v] ?? 0) * scale;
    if (!isClassifier) {
      const through = await this.throughNorm(e, this.stream(last, c), "final_norm.");
      return {...this.streamAt(last, c, through.G, through.constant + constant, `${name} after position ${c}`), value: all[c * V + v], tags: ["layernorm.3"],
        words: "The logit is the row of the token table for this output times the final norm of the residual stream. Each term is the contribution of one block to the stream."};
    }
    const isMean = info.settings["class-pooling"] !== "cls", C = isMean ? seen.tokens.length : 1;
    const parts = [];
    for (let at = 0; at < C; ++at) {
      const share = e.map((x) => x / C), through = await this.throughNorm(share, this.stream(last, at), "final_norm.");
      const value = product(through.G, this.stream(last, at)) + through.constant;
      parts.push({name: `position ${at}: ${shownToken(seen.tokens[at])}`, value,
        next: async () => this.streamAt(last, at, through.G, through.constant, `The part of position ${at}`)});
    }
    if (constant) parts.push({name: "bias of the classifier", value: constant});
    return {name, value: all[v], parts, tags: ["layernorm.3"], words: isMean
      ? "The logit is the row of the classifier for this class times the mean of the final norm over all positions."
      : "The logit is the row of the classifier for this class times the final norm of the first position."};
  }

  // Node of the product of a row G and the stream before block j, plus a constant.
  streamAt(j, c, G, constant, name, words) {
    const token = `“${shownToken(this.seen.tokens[c])}”`;
    const compute = async () => {
      const parts = [], start = this.stream(0, c);
      const table = this.info.settings["embedding-norm"] === "1" ? undefined : this.info.weights.find((one) => /position_cd$/.test(one.name));
      const position = table && (await this.weight(table.name)).subarray(c * G.length, (c + 1) * G.length);
      const whole = product(G, start), ofPosition = position ? product(G, position) : 0;
      parts.push({name: `token ${token}`, value: whole - ofPosition, end: `the input at position ${c}: the embedding of ${token}`});
      if (position) parts.push({name: `position ${c}`, value: ofPosition, end: `the embedding of position ${c}`});
      for (let i = 0; i < j; ++i) {
        const value = product(G, this.added(i, c));
        parts.push({name: layerName(this.blocks[i], this.info), value, next: async () => this.block(i, c, G, value)});
      }
      if (Math.abs(constant) > 1e-7) parts.push({name: "bias of the norm", value: constant});
      return parts;
    };
    return {name: name ?? `The residual stream of position ${c}, ${token}`, value: product(G, this.stream(j, c)) + constant, compute, tags: [],
      words: words ?? "The stream is the sum of the embedding and the outputs of all blocks before this point."};
  }

  // Node of the contribution of block j to the product with the row G.
  async block(j, c, G, value) {
    const layer = this.blocks[j], mixer = blockOf(layer, this.info), of = (name) => this.weight(`${layer}.${name}`), D = G.length;
    const node = {name: `${layerName(layer, this.info)}, position ${c}`, value, parts: [], tags: []};
    const token = (s) => `position ${s}: ${shownToken(this.seen.tokens[s])}`;
    // Continues with the product of a row e and h, the norm of the stream before this block.
    const before = async (e, s, name) => {
      const {G: next, constant} = await this.throughNorm(e, this.stream(j, s), `${layer}.norm_`);
      return this.streamAt(j, s, next, constant, name);
    };
    const weights = this.seen.weightsOf(layer);
    if (mixer === "ffn") {
      const down = await of("down_df"), up = await of("up_fd"), hidden = this.row(layer, "hidden_bcf", c), F = hidden.length;
      const inner = this.turned(G, down, F), raw = this.row(layer, "up_bcf", c);
      Object.assign(node, {tags: ["ffn.4", "ffn.3"], words: "A sum over hidden units: the value of each unit times its column of the second matrix."});
      hidden.forEach((x, f) => node.parts.push({name: `unit ${f}`, value: inner[f] * x, numbers: `${decimal(inner[f], 3)} × ${decimal(x, 3)}, where ${decimal(x, 3)} is the activation of ${decimal(raw[f], 3)}`,
        next: async () => ({...(await before(up.subarray(f * D, (f + 1) * D), c, `The input of unit ${f}`)), tags: ["ffn.2"], words: "The activation function is not linear. From this step on, the terms add up to the input of the unit."})}));
    } else if (mixer === "conv") {
      const taps = await of("weight_dgj"), {extents: [, groups, J]} = this.info.weights.find(({name}) => name === `${layer}.weight_dgj`);
      Object.assign(node, {tags: ["conv.2"], words: "A sum over the last positions: the tap of each position times its row."});
      for (let back = 0; groups === 1 && back < Math.min(J, c + 1); ++back) {
        const e = G.map((g, d) => g * taps[d * J + J - 1 - back]), h = this.row(layer, "h_bcd", c - back);
        node.parts.push({name: token(c - back), value: product(e, h), next: () => before(e, c - back, `The input of tap ${back}`)});
      }
    } else if (this.seen.array(layer, "e_weight_bncs")) {
      const v = this.row(layer, "v_bcd", c), skip = this.info.settings["additive-skip"] === "normed";
      Object.assign(node, {tags: ["additive.11", "additive.10"], words: "The second pooling times the value of this position. The pooling is a sum over heads and positions of weight × t."});
      if (!skip) this.readers(node, layer, "e_weight_bncs", "t_bcd", c, G.map((g, d) => g * v[d]), token, (e, s) => this.gate(j, s, e, before, token));
    } else if (mixer === "average" && weights.length) {
      Object.assign(node, {tags: ["average.2"], words: "A sum over positions with equal weights."});
      this.readers(node, layer, weights[0].name, "h_bcd", c, G, token, before);
    } else {
      const output = await of("output_dh"), source = (await of("value_hd")) ?? (await of("project_hd"));
      const value = ["value_bch", "p_bch"].find((name) => this.seen.array(layer, name));
      if (output && source && value && weights.length) {
        const H = this.seen.array(layer, value).extents.at(-1), made = tagOf(mixer, "t_bch");
        Object.assign(node, {tags: [tagOf(mixer, "y_bcd"), "attention.5", made], words: "A sum over heads and keys: weight × value × output matrix."});
        this.readers(node, layer, weights[0].name, value, c, this.turned(G, output, H), token, (e, s, n) => before(this.turned(e, source, D), s, `The input of head ${n}`));
      } else node.words = "The page does not divide the contribution of this block into terms.";
    }
    const rest = value - node.parts.reduce((sum, part) => sum + part.value, 0);
    if (node.parts.length && Math.abs(rest) > 1e-4) node.parts.push({name: "biases", value: rest});
    return node;
  }

  // Adds the terms of a sum over heads n and positions s of weight[n, c, s] e · row(s). next() returns the node of a term.
  readers(node, layer, weightName, name, c, e, token, next) {
    const {extents: [N, , S], values} = this.seen.array(layer, weightName), C = this.seen.array(layer, weightName).extents[1], K = e.length / N;
    for (let n = 0; n < N; ++n) {
      for (let s = 0; s < S; ++s) {
        const weight = values[(n * C + c) * S + s], row = this.row(layer, name, s);
        if (!(weight > 0) || !row) continue;
        const own = e.map((x, h) => (Math.floor(h / K) === n ? x : 0)), along = product(own, row);
        node.parts.push({name: `head ${n}, ${token(s)}`, value: weight * along, numbers: `weight ${decimal(weight, 3)} × ${decimal(along, 3)}`,
          next: () => next(own.map((x) => weight * x), s, n)});
      }
    }
  }

  // Additive attention between its two poolings: t = norm(h + p k), where p is computed from the first pooling.
  async gate(j, s, e, before, token) {
    const layer = this.blocks[j], {G, constant} = await this.throughNorm(e, this.row(layer, "r_bcd", s), `${layer}.mid_norm_`);
    const r = this.row(layer, "r_bcd", s), h = this.row(layer, "h_bcd", s), k = this.row(layer, "k_bcd", s);
    const value = product(G, r) + constant, own = product(G, h), gated = product(G, r) - own, D = G.length;
    const first = async () => {
      const node = {name: `The first pooling at position ${s}`, value: gated, parts: [], tags: ["additive.7", "additive.4"],
        words: "The key of this position times a pooling of queries. The pooling is a sum over heads and positions."};
      const mix = await this.weight(`${layer}.mix_dd`), query = await this.weight(`${layer}.query_dd`), by = G.map((g, d) => g * k[d]);
      const back = (row, at) => before(this.turned(row, query, D), at, `The query of position ${at}`);
      this.readers(node, layer, "a_weight_bncs", "q_bcd", s, mix ? this.turned(by, mix, D) : by, token, back);
      return node;
    };
    const parts = [{name: "the position itself", value: own, next: () => before(G, s, `Position ${s} itself`)}, {name: "its key × the first pooling", value: gated, next: first}];
    if (Math.abs(constant) > 1e-7) parts.push({name: "bias of the norm", value: constant});
    return {name: `Position ${s} between the poolings`, value, parts, tags: ["additive.8", "additive.7"], words: "The norm of a sum: the position plus its key times the first pooling."};
  }

  // ---- Forward from an input ----

  async readersOf(j, s) {
    const {seen, info} = this, {blocks} = this;
    let at = j;
    while (at < blocks.length && !seen.weightsOf(blocks[at]).length) ++at;
    const token = `“${shownToken(seen.tokens[s])}”`, norm = length(this.stream(at, s));
    if (at === blocks.length) {
      const c = seen.probabilities.length === seen.outputs.length ? 0 : s, V = seen.outputs.length, row = seen.probabilities.subarray(c * V, (c + 1) * V);
      const parts = [...row].map((value, v) => ({name: shownToken(seen.outputs[v]), value, end: "an output"}));
      return {name: `The outputs after position ${s}, ${token}`, value: norm, parts, tags: [], isLength: true, words: "The stream has passed all layers. The values are the probabilities of the outputs."};
    }
    const layer = blocks[at], weights = seen.weightsOf(layer).at(-1), [N, C] = weights.extents, output = await this.weight(`${layer}.output_dh`);
    const name = ["value_bch", "p_bch", "t_bcd", "pooled_value_bcd", "h_bcd"].find((one) => seen.array(layer, one)), row = this.row(layer, name, s), parts = [];
    const H = row.length, K = H / N;
    for (let n = 0; n < N; ++n) {
      const own = [...row].map((x, h) => (Math.floor(h / K) === n ? x : 0)), D = output ? output.length / H : H;
      const sent = output ? Array.from({length: D}, (_, d) => product(own, output.subarray(d * H, (d + 1) * H))) : own, size = length(sent);
      for (let c = 0; c < C; ++c) {
        const weight = weights.values[(n * C + c) * weights.extents[2] + s];
        if (weight > 0) parts.push({name: `head ${n} → position ${c}: ${shownToken(seen.tokens[c])}`, value: weight * size, numbers: `weight ${decimal(weight, 3)} × length ${decimal(size, 3)}`, next: () => this.readersOf(at + 1, c)});
      }
    }
    return {name: `Position ${s}, ${token}, read by ${layerName(layer, info)}`, value: norm, parts, tags: [tagOf(blockOf(layer, info), output ? "t_bch" : name)], isLength: true,
      words: `Each value is the length of the contribution of this position to another position through one head. The stream at this position has the length ${decimal(norm, 2)}. Choose a position to continue.`};
  }

  // ---- Drawing ----

  async draw() {
    if (this.drawing) return (this.again = true);
    this.drawing = true;
    try {
      do {
        this.again = false;
        this.cache = new Map();
        this.list.replaceChildren(...(await this.steps()));
      } while (this.again);
    } catch (error) {
      if (!/network|run/.test(error.message)) throw error;  // otherwise another network was opened during the request
    } finally {
      this.drawing = false;
    }
  }

  async steps() {
    const {settings} = this.info, isForward = this.field("way").value === "forward", isPlain = settings.norm !== "post" && settings.reversible !== "1";
    this.field("output").parentElement.hidden = isForward;
    this.field("at").parentElement.hidden = !isForward && this.seen.probabilities.length === this.seen.outputs.length;
    if (!isPlain || !this.blocks.length) return [make("li", {}, make("p", {class: "note"}, "This section needs a network with a norm before each block and one residual stream."))];
    const drawn = [];
    let node = isForward ? await this.readersOf(0, +this.field("at").value) : await this.logit();
    for (let depth = 0; node; ++depth) {
      const parts = node.parts ?? (await node.compute()), chosen = parts.find(({name}) => name === this.path[depth]);
      drawn.push(this.step(node, parts, chosen, depth));
      node = chosen?.next ? await chosen.next() : undefined;
    }
    return drawn;
  }

  step(node, parts, chosen, depth) {
    const order = parts.toSorted((a, b) => Math.abs(b.value) - Math.abs(a.value)), shown = order.slice(0, PARTS), rest = order.slice(PARTS);
    if (chosen && !shown.includes(chosen)) shown.push(...rest.splice(rest.indexOf(chosen), 1));
    const most = Math.abs(order[0]?.value ?? 1) || 1;
    const row = (name, value, inside) => {
      const bar = make("span", {class: `bar ${value < 0 ? "minus" : "plus"}`, style: `--share:${Math.abs(value) / most}`, "aria-hidden": "true"});
      return make("li", {}, inside ?? make("span", {class: "name"}, name), bar, make("span", {class: "share"}, decimal(value, 3)));
    };
    const items = shown.map((part) => {
      if (!part.next && !part.end) return row(part.name, part.value);
      const button = make("button", {type: "button", "aria-pressed": String(part === chosen), title: part.numbers}, part.name);
      button.onclick = async () => {
        this.path = [...this.path.slice(0, depth), part.name];
        await this.draw();
        this.list.children[depth + 1]?.scrollIntoView({block: "nearest"});
        this.list.children[depth]?.querySelector("[aria-pressed=true]")?.focus({preventScroll: true});
      };
      return row(part.name, part.value, button);
    });
    if (rest.length) items.push(row(`${rest.length} more`, rest.reduce((sum, part) => sum + part.value, 0)));
    const sum = node.isLength || !parts.length ? "" : ` = ${decimal(node.value, 3)}`;
    const told = chosen && (chosen.numbers ?? chosen.end);
    return make("li", {class: "step"}, make("h3", {}, `${node.name}${sum}`), make("p", {class: "note"}, node.words ?? ""),
      ...node.tags.filter(Boolean).map((tag) => equation(tag)), make("ol", {class: "sum"}, ...items),
      ...(told ? [make("p", {class: "values"}, `${chosen.name}: ${told}${chosen.numbers ? ` = ${decimal(chosen.value, 3)}` : ""}`)] : []));
  }
}
