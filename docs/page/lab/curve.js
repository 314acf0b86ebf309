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
    const x = (step) => left + (width - left - right) * step / most, y = (loss) => bottom - (bottom - top) * Math.min(loss / high, 1.02);
    for (const part of [0, 0.5, 1]) {
      const level = bottom - (bottom - top) * part;
      svg.append(make("line", {x1: left, x2: width - right, y1: level, y2: level, class: "grid"}));
      if (losses.length) svg.append(make("text", {x: left - 6, y: level + 4, class: "axis loss end"}, (part * high).toFixed(high < 0.2 ? 2 : 1)));
      if (scores.length) svg.append(make("text", {x: width - right + 6, y: level + 4, class: "axis score"}, percent(part)));
    }
    svg.append(make("text", {x: left, y: height - 6, class: "axis"}, "0"), make("text", {x: width - right, y: height - 6, class: "axis end"}, `step ${most}`));
    if (!losses.length) svg.append(make("text", {x: (left + width - right) / 2, y: height / 2, class: "axis middle"}, "here the loss will fall"));
    if (losses.length > 1) {
      // Of many steps as many as there are pixels: the mean of a pixel's, and through them a smoother one.
      const each = Math.max(1, Math.ceil(losses.length / (width - left - right)));
      let raw = "", smooth = "", mean;
      for (let i = 0; i < losses.length; i += each) {
        const some = losses.slice(i, i + each), value = some.reduce((sum, loss) => sum + loss, 0) / some.length;
        mean = mean === undefined ? value : mean + 0.2 * (value - mean);
        raw += `${i ? "L" : "M"}${x(i + 1).toFixed(1)} ${y(value).toFixed(1)}`;
        smooth += `${i ? "L" : "M"}${x(i + 1).toFixed(1)} ${y(mean).toFixed(1)}`;
      }
      svg.append(make("path", {d: raw, class: "raw"}), make("path", {d: smooth, class: "loss"}));
      svg.append(make("text", {x: x(losses.length) + 6, y: Math.min(bottom - 4, y(mean) - 6), class: "name loss"}, "loss"));
    }
    if (scores.length) {
      const at = ([step, share]) => `${x(step).toFixed(1)} ${(bottom - (bottom - top) * share).toFixed(1)}`;
      svg.append(make("path", {d: "M" + scores.map(at).join("L"), class: "score"}));
      const [cx, cy] = at(scores.at(-1)).split(" ");
      svg.append(make("circle", {cx, cy, r: 3.5, class: "score"}));
      if (scores.length > 1) svg.append(make("text", {x: +cx + (cx < 140 ? 8 : -8), y: +cy < top + 24 ? +cy + 18 : +cy - 8, class: cx < 140 ? "name score" : "name score end"}, "right answers"));
    }
    this.place.replaceChildren(svg);
  }

  // Where the axis of steps ends: not far behind the last one, so that a long run is seen from its beginning.
  reach() {
    const least = 1.1 * this.losses.length;
    return Math.max(this.losses.length, 1, Math.min(this.steps || Infinity, [100, 200, 500, 1000, 2000, 5000].find((end) => end >= least) ?? this.steps));
  }

  told() {
    if (!this.losses.length) return "Loss and right answers: nothing yet";
    const score = this.scores.length ? `; ${percent(this.scores.at(-1)[1])} of answers right` : "";
    return `Loss after ${this.losses.length} steps: ${decimal(this.losses.at(-1))}, at first ${decimal(this.losses[0])}${score}`;
  }
}
