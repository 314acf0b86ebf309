// The loss of every step, and the share of right answers, as curves that grow.

class Curve {
  constructor(place) {
    this.place = place;
    this.width = 640;
    this.height = 300;
    this.draw = this.draw.bind(this);
    this.clear();
    new ResizeObserver(() => this.soon()).observe(place);
  }

  clear() {
    this.losses = [];
    this.scores = [];  // [step, share] of right answers
    this.steps = 0;
    this.soon();
  }

  add(losses) {
    for (const loss of losses) this.losses.push(loss);
    this.soon();
  }

  score(step, share) {
    if (this.scores.at(-1)?.[0] === step) this.scores.pop();
    if (Number.isFinite(share)) this.scores.push([step, share]);
    this.soon();
  }

  // One drawing a frame, however many losses came.
  soon() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  draw() {
    this.width = Math.max(280, this.place.clientWidth);
    const {width, height, losses, scores} = this, left = 34, right = 44, top = 14, bottom = height - 24;
    const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": this.told()});
    const most = this.reach(), high = Math.max(...losses.slice(0, 20), 0.001) * 1.06;
    const x = (step) => left + (width - left - right) * step / most;
    const y = (loss) => bottom - (bottom - top) * Math.min(loss / high, 1.02);
    const write = (x, y, kind, text) => svg.append(make("text", {x, y, class: kind}, text));
    for (const part of [0, 0.5, 1]) {
      const level = bottom - (bottom - top) * part;
      svg.append(make("line", {x1: left, x2: width - right, y1: level, y2: level, class: "grid"}));
      if (losses.length) write(left - 6, level + 4, "axis loss end", (part * high).toFixed(high < 0.2 ? 2 : 1));
      if (scores.length) write(width - right + 6, level + 4, "axis score", percent(part));
    }
    write(left, height - 6, "axis", "0");
    write(width - right, height - 6, "axis end", `step ${most}`);
    if (!losses.length) write((left + width - right) / 2, height / 2, "axis middle", "no steps yet");
    if (losses.length > 1) {
      // A long run has one point per pixel, the mean of its steps. A smoother curve goes through these points.
      const each = Math.max(1, Math.ceil(losses.length / (width - left - right)));
      let raw = "", smooth = "", mean;
      for (let i = 0; i < losses.length; i += each) {
        const some = losses.slice(i, i + each), value = some.reduce((sum, loss) => sum + loss, 0) / some.length;
        mean = mean === undefined ? value : mean + 0.2 * (value - mean);
        raw += `${i ? "L" : "M"}${x(i + 1).toFixed(1)} ${y(value).toFixed(1)}`;
        smooth += `${i ? "L" : "M"}${x(i + 1).toFixed(1)} ${y(mean).toFixed(1)}`;
      }
      svg.append(make("path", {d: raw, class: "raw"}), make("path", {d: smooth, class: "loss"}));
      write(x(losses.length) + 6, Math.min(bottom - 4, y(mean) - 6), "name loss", "loss");
    }
    if (scores.length) {
      const at = ([step, share]) => `${x(step).toFixed(1)} ${(bottom - (bottom - top) * share).toFixed(1)}`;
      svg.append(make("path", {d: "M" + scores.map(at).join("L"), class: "score"}));
      const [cx, cy] = at(scores.at(-1)).split(" ").map(Number), early = cx < 140;
      svg.append(make("circle", {cx, cy, r: 3.5, class: "score"}));
      // Before the point and above it; behind it at the left border, below it at the upper one.
      const kind = early ? "name score" : "name score end", below = cy < top + 24;
      if (scores.length > 1) write(cx + (early ? 8 : -8), cy + (below ? 18 : -8), kind, "accuracy");
    }
    this.place.replaceChildren(svg);
  }

  // Where the axis of steps ends: not far behind the last one, so that a long run is seen from its beginning.
  reach() {
    const gone = this.losses.length, end = [100, 200, 500, 1000, 2000, 5000].find((end) => end >= 1.1 * gone) ?? this.steps;
    return Math.max(gone, 1, Math.min(this.steps || Infinity, end));
  }

  told() {
    if (!this.losses.length) return "Loss and accuracy: no steps yet";
    const score = this.scores.length ? `; accuracy ${percent(this.scores.at(-1)[1])}` : "";
    return `Loss after ${this.losses.length} steps: ${decimal(this.losses.at(-1))}, first loss ${decimal(this.losses[0])}${score}`;
  }
}
