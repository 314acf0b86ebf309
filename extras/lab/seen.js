// Arrays of one inspection, by layer and name: activations of the forward pass and gradients of the backward pass.

// One array, without the leading extent 1 of the batch.
class Shown {
  constructor({layer, name, extents, values}) {
    Object.assign(this, {layer, name, values});
    this.extents = extents.length > 1 && extents[0] === 1 && /_b/.test(name) ? extents.slice(1) : extents;
  }

  // Returns the part with index n of the first extent: head n of (N, C, S) or (N, C).
  part(n) {
    const width = this.values.length / this.extents[0];
    return this.values.subarray(n * width, (n + 1) * width);
  }

  get shape() {
    return this.extents.join(" × ");
  }
}

class Seen {
  constructor(told) {
    Object.assign(this, told);
    this.arrays = told.arrays.map((one) => new Shown(one));
    this.gradients = told.gradients.map((one) => new Shown({...one, name: `d_${one.name}`}));
    this.layers = [...new Set(this.arrays.map((one) => one.layer))];
  }

  // The most likely output after position c; undefined for a classifier.
  likeliest(c) {
    const V = this.outputs.length;
    if (this.probabilities.length !== V * this.tokens.length) return undefined;
    const row = this.probabilities.subarray(c * V, (c + 1) * V);
    return this.outputs[row.indexOf(Math.max(...row))];
  }

  array(layer, name) {
    return this.arrays.find((one) => one.layer === layer && one.name === name);
  }

  // The attention weights of a layer, (N, C, S) arrays; a pooling has two.
  weightsOf(layer) {
    return this.arrays.filter((one) => one.layer === layer && /weight_b?ncs$/.test(one.name) && one.extents.length === 3);
  }

  // The logits behind the weights of a pooling, one number per position and head.
  logitsOf(weights) {
    const prefix = weights.name.match(/^(.*?)_?weight_/)[1];
    const named = (name) => this.array(weights.layer, name);
    return prefix ? named(`${prefix}_bnc`) : named("a_bnc");
  }

  // The averages of a pooling with the given weights, (C, D).
  averageOf(weights) {
    const names = {a_weight_bncs: ["P_bcd"], e_weight_bncs: ["u_bcd"], weight_bncs: ["pooled_value_bcd", "y_bcd"]}[weights.name] ?? [];
    return names.map((name) => this.array(weights.layer, name)).find(Boolean);
  }
}
