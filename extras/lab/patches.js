// The input picture, and one copy per head of a layer. The brightness of a patch shows its attention weight.

class Patches {
  constructor(place) {
    this.place = place;
    colours.changed.push(() => this.pixels && this.draw());
  }

  // weights: attention weights (N, C, S) of a layer, or undefined. With a class token before the patches, only its row is used.
  show(pixels, weights) {
    Object.assign(this, {pixels, weights});
    this.draw();
  }

  draw() {
    const {pixels, weights} = this, side = Math.round(Math.sqrt(pixels.length)), ink = Float32Array.from(pixels);
    const figure = (caption, part) => {
      const canvas = make("canvas", {role: "img", "aria-label": caption}), shades = new Float32Array(ink.length);
      ink.forEach((x, i) => (shades[i] = part ? (0.06 + 0.94 * x) * part(i % side, Math.floor(i / side)) : x));
      paint(canvas, shades.map((x) => x * x), side, side, {signed: false, largest: 1});
      return make("figure", {}, canvas, make("figcaption", {}, caption));
    };
    const figures = [figure("input")];
    if (weights) {
      const [N, C, S] = weights.extents, across = Math.floor(Math.sqrt(S)), first = S - across * across, patch = side / across;
      for (let n = 0; n < N; ++n) {
        const map = weights.part(n), share = new Float32Array(S);
        for (let c = 0; c < (first ? 1 : C); ++c) for (let s = 0; s < S; ++s) share[s] += map[c * S + s];
        const most = Math.max(...share.subarray(first));
        figures.push(figure(`head ${n}`, (x, y) => share[first + Math.floor(y / patch) * across + Math.floor(x / patch)] / most));
      }
    }
    this.place.replaceChildren(...figures);
  }
}
