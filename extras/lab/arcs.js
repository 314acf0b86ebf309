// The inspected tokens as a line of text, with an arc above them for each large attention weight.

class Arcs {
  constructor(place) {
    this.place = place;
    colours.changed.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // weights: attention weights (N, C, S) of the chosen layer, or undefined; n: index of a head, undefined for all heads.
  show(seen, weights, n) {
    Object.assign(this, {seen, weights, n});
    this.draw();
  }

  draw() {
    const {seen, weights} = this;
    if (!seen?.tokens?.length) return this.place.replaceChildren();
    const tokens = seen.tokens, count = tokens.length, wide = Math.max(...tokens.map((token) => shownToken(token).length));
    const room = this.place.clientWidth || 600, least = wide > 2 ? 9 * wide : 15;
    const each = Math.max(least, Math.min(72, (room - 8) / count)), width = Math.max(room, each * count + 8);
    const letter = Math.min(38, each * (wide > 2 ? 0.24 : 0.72)), most = Math.min(150, each * count / 3.2), base = most + 14;
    const height = base + letter * 1.6 + 22, x = (c) => (width - each * count) / 2 + each * (c + 0.5);
    const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": tokens.join(" ")});
    if (weights) {
      const [N, C, S] = weights.extents, heads = this.n === undefined ? [...Array(N).keys()] : [this.n];
      const colour = css(colours.weight[Math.round(LEVELS * 0.62)]);
      const perPosition = seen.targets.length === count && seen.targets.some((target) => target !== null);
      const shows = (c) => (this.from !== undefined ? c === this.from : !perPosition || seen.targets[c] !== null);
      for (const n of heads) {
        const map = weights.part(n);
        for (let c = 0; c < C; ++c) {
          if (!shows(c)) continue;
          // Shows the two largest weights of each row, or all weights above 5 % of the largest if only one row is shown.
          // The largest weight of a row has the full width, because all weights are small in a long text.
          const row = map.subarray(c * S, (c + 1) * S), top = row.toSorted().slice(-2), heaviest = top.at(-1);
          const least = this.from === undefined ? Math.max(0.1 * heaviest, top[0]) : 0.05 * heaviest;
          for (let s = 0; s < S; ++s) {
            const weight = row[s];
            if (!(weight >= least && weight > 0)) continue;
            const high = s === c ? 10 : Math.min(most, Math.abs(x(c) - x(s)) * 0.42);
            const d = s === c
              ? `M${x(c) - 5} ${base}a5 7 0 1 1 10 0`
              : `M${x(c)} ${base}C${x(c)} ${base - high * 1.25} ${x(s)} ${base - high * 1.25} ${x(s)} ${base}`;
            const part = weight / heaviest, wide = (0.75 + 3.5 * part).toFixed(2), opacity = (0.15 + 0.85 * part).toFixed(2);
            svg.append(make("path", {d, stroke: colour, "stroke-width": wide, opacity, fill: "none"}));
          }
        }
      }
    }
    tokens.forEach((token, c) => {
      const given = seen.targets.length === count && seen.targets[c] === null;
      const group = make("g", {class: `token${c === this.from ? " from" : ""}`});
      const high = letter * 1.6 + 20, style = `font-size:${letter.toFixed(1)}px`, kind = given ? "letter given" : "letter";
      group.append(make("rect", {x: x(c) - each / 2, y: base + 2, width: each, height: high, fill: "transparent"}));
      group.append(make("text", {x: x(c), y: base + letter * 1.15 + 2, style, class: kind}, shownToken(token)));
      const said = given ? undefined : seen.likeliest?.(c);
      if (said !== undefined && count <= 24 && each > 20) {
        const kind = said === seen.targets[c] ? "next" : "next wrong";
        group.append(make("text", {x: x(c), y: base + letter * 1.6 + 14, class: kind}, `→ ${shownToken(said)}`));
      }
      group.onpointerenter = () => this.point(c);
      group.onpointerleave = () => this.point(undefined);
      svg.append(group);
    });
    this.place.replaceChildren(svg);
  }

  point(c) {
    if (this.from === c) return;
    this.from = c;
    // Drawing replaces the element below the pointer, so it waits until the pointer event has ended.
    requestAnimationFrame(() => this.draw());
  }
}
