// Shows weights that do not depend on the input: the similarity of position embeddings, and the convolution taps.

class Known {
  // read(name, arena): reads weights from the engine.
  constructor(place, read) {
    Object.assign(this, {place, read});
    colours.changed.push(() => this.info && this.show(this.seen, this.info));
  }

  async show(seen, info) {
    Object.assign(this, {seen, info});
    if (this.reading) return;
    const wanted = info.weights.filter(({name}) => /position_cd$|conv\.weight_dgj$/.test(name));
    if (this.key !== info.command) {
      this.canvases = wanted.map(({name}) => {
        const isTable = /position_cd$/.test(name), layer = name.match(/\d+/)?.[0];
        const said = isTable ? "cosine similarity of position embeddings" : `convolution taps before layer ${layer}; the first row belongs to the newest position`;
        const canvas = make("canvas", {role: "img", "aria-label": said, class: isTable ? "square" : "taps"});
        return {name, isTable, canvas, figure: make("figure", {}, canvas, make("figcaption", {}, said))};
      });
      this.place.replaceChildren(...this.canvases.map(({figure}) => figure));
      this.key = info.command;
    }
    this.reading = true;
    try {
      for (const {name, isTable, canvas} of this.canvases) {
        const {extents, values} = await this.read(name, "weights");
        if (isTable) this.alike(canvas, values, extents);
        else this.taps(canvas, values, extents);
      }
    } catch {
      // Another network was opened during the request.
    } finally {
      this.reading = false;
    }
  }

  // Draws the cosine similarities of the rows of a table (C, D).
  alike(canvas, values, [C, D]) {
    const row = (c) => values.subarray(c * D, (c + 1) * D), dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
    const length = Array.from({length: C}, (_, c) => Math.sqrt(dot(row(c), row(c)))), cosines = new Float32Array(C * C);
    for (let c = 0; c < C; ++c) for (let s = 0; s < C; ++s) cosines[c * C + s] = dot(row(c), row(s)) / (length[c] * length[s]);
    paint(canvas, cosines, C, C, {largest: 1});
  }

  // Draws taps (D, G, J) with one row per tap, the newest position first.
  taps(canvas, values, [D, G, J]) {
    const turned = new Float32Array(values.length);
    for (let d = 0; d < D * G; ++d) for (let j = 0; j < J; ++j) turned[(J - 1 - j) * D * G + d] = values[d * J + j];
    paint(canvas, turned, J, D * G);
  }
}
