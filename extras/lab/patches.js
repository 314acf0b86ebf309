// A picture that is read, and beside it what each head of a layer looks at: patches shine as much as they are looked at.

class Patches {
  constructor(place) {
    this.place = place;
    colours.changed.push(() => this.pixels && this.draw());
  }

  // weights: (N, C, S) of a layer, or none; a position in front of the patches, if there is one, is the only one that asks.
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
