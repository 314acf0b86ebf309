// Plot of the training loss per step, the validation loss and accuracy per evaluation, and earlier runs for comparison.
// A long run has one point per pixel, so that the size of the drawing is bounded.

const RISES = 1.08;  // the validation loss has risen if it exceeds the lowest one by this factor

class Curve {
  constructor(place) {
    this.place = place;
    this.width = 640;
    this.height = 300;
    this.earlier = [];  // runs: {name, points, held}
    this.draw = this.draw.bind(this);
    this.clear();
    new ResizeObserver(() => this.soon()).observe(place);
  }

  clear() {
    this.losses = [];
    this.scores = [];  // [step, share of correct answers]
    this.held = [];  // [step, validation loss]
    this.steps = 0;
    this.soon();
  }

  // Keeps this run for comparison with the next one, under the given name.
  keep(name) {
    if (this.losses.length < 2) return;
    const run = {name, points: this.smooth(), held: this.held, steps: this.losses.length};
    this.earlier = [...this.earlier.filter((one) => one.name !== name), run].slice(-3);
  }

  forget() {
    this.earlier = [];
    this.soon();
  }

  add(losses) {
    for (const loss of losses) this.losses.push(loss);
    this.soon();
  }

  // share: share of correct answers; undefined if the task has none.
  score(step, loss, share) {
    const add = (points, value) => {
      if (points.at(-1)?.[0] === step) points.pop();
      if (Number.isFinite(value)) points.push([step, value]);
    };
    add(this.scores, share);
    add(this.held, loss);
    this.soon();
  }

  // Returns a sentence if the validation loss rises while the training loss falls, otherwise "".
  overfits() {
    const {held, losses} = this;
    if (held.length < 3) return "";
    const [step, least] = held.reduce((best, point) => (point[1] < best[1] ? point : best)), [last, now] = held.at(-1);
    const recent = (end) => mean(losses.slice(Math.max(0, end - 50), end));
    if (!(now > RISES * least) || !(held.at(-2)[1] > least) || !step || !(recent(last) < recent(step))) return "";
    return `The validation loss has risen from ${decimal(least, 2)} after step ${step} to ${decimal(now, 2)}, while the training loss falls. `
      + "The network overfits: it memorizes the training data. Fewer steps, more data, dropout or weight decay reduce overfitting.";
  }

  // Draws at most once per frame.
  soon() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  // Moving mean of the loss as points [step, loss].
  smooth() {
    const each = this.each(), points = [];
    let average;
    for (let i = 0; i < this.losses.length; i += each) {
      const value = mean(this.losses.slice(i, i + each));
      average = average === undefined ? value : average + 0.2 * (value - average);
      points.push([i + 1, average, value]);
    }
    return points;
  }

  each() {
    return Math.max(1, Math.ceil(this.losses.length / (this.width - 78)));
  }

  draw() {
    this.width = Math.max(280, this.place.clientWidth);
    const {width, height, losses, scores, held, earlier} = this, left = 34, right = 44, top = 14, bottom = height - 24;
    const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": this.told()});
    const first = Math.max(...losses.slice(0, 20), ...earlier.flatMap((run) => run.points.slice(0, 20).map((point) => point[1])), 0.001);
    const all = [...held, ...earlier.flatMap((run) => run.held)].map((point) => point[1]);
    const hasSteps = losses.length || earlier.length, most = this.reach();
    const high = 1.06 * Math.min(hasSteps ? 4 * first : Infinity, Math.max(first, ...all));
    const x = (step) => left + (width - left - right) * step / most;
    const y = (loss) => bottom - (bottom - top) * Math.min(loss / high, 1.02);
    const write = (x, y, kind, text) => svg.append(make("text", {x, y, class: kind}, text));
    const line = (points, kind) => {
      const at = ([step, loss]) => `${x(step).toFixed(1)} ${y(loss).toFixed(1)}`;
      svg.append(make("path", {d: "M" + points.filter((point) => Number.isFinite(point[1])).map(at).join("L"), class: kind}));
    };
    const names = [];  // labels at the ends of the lines: {x, y, kind, text}
    for (const part of [0, 0.5, 1]) {
      const level = bottom - (bottom - top) * part;
      svg.append(make("line", {x1: left, x2: width - right, y1: level, y2: level, class: "grid"}));
      if (losses.length || held.length) write(left - 6, level + 4, "axis loss end", (part * high).toFixed(high < 0.2 ? 2 : 1));
      if (scores.length) write(width - right + 6, level + 4, "axis score", percent(part));
    }
    write(left, height - 6, "axis", "0");
    write(width - right, height - 6, "axis end", `step ${most}`);
    if (!losses.length) write((left + width - right) / 2, height / 2, "axis middle", "no steps yet");
    for (const run of earlier) {
      line(run.points, "earlier");
      if (run.held.length > 1) line(run.held, "earlier held");
      const [step, loss] = (run.held.length > 1 ? run.held : run.points).at(-1);
      names.push({x: x(step), y: y(loss), kind: "earlier", text: run.name});
    }
    if (losses.length > 1) {
      const points = this.smooth();
      line(points.map(([step, , value]) => [step, value]), "raw");
      line(points, "loss");
      names.push({x: x(losses.length), y: y(points.at(-1)[1]), kind: "loss", text: "training loss"});
    }
    if (held.length) {
      if (held.length > 1) line(held, "held");
      const [step, loss] = held.at(-1);
      svg.append(make("circle", {cx: x(step), cy: y(loss), r: 3.5, class: "held"}));
      if (losses.length) names.push({x: x(step), y: y(loss), kind: "held", text: "validation loss"});
    }
    if (scores.length) {
      const level = (share) => bottom - (bottom - top) * share, [step, share] = scores.at(-1);
      svg.append(make("path", {d: "M" + scores.map(([step, share]) => `${x(step).toFixed(1)} ${level(share).toFixed(1)}`).join("L"), class: "score"}));
      svg.append(make("circle", {cx: x(step), cy: level(share), r: 3.5, class: "score"}));
      if (scores.length > 1) names.push({x: x(step), y: level(share), kind: "score", text: "accuracy"});
    }
    // Labels are spread so that they do not overlap. Near the left border a label is on the right of its point.
    names.sort((a, b) => a.y - b.y);
    let above = top - 8;
    for (const one of names) {
      const isEarly = one.x < 150, level = Math.min(bottom - 4, Math.max(above + 15, one.y - 7));
      write(one.x + (isEarly ? 8 : -8), level, `name ${one.kind}${isEarly ? "" : " end"}`, one.text);
      above = level;
    }
    this.place.replaceChildren(svg);
  }

  // Last step of the horizontal axis. It is close to the current step, so that the first steps of a long run are visible.
  reach() {
    const gone = Math.max(this.losses.length, ...this.earlier.map((run) => run.steps));
    const end = [100, 200, 500, 1000, 2000, 5000].find((end) => end >= 1.1 * gone) ?? this.steps;
    return Math.max(gone, 1, Math.min(this.steps || Infinity, end));
  }

  told() {
    if (!this.losses.length) return "Loss and accuracy: no steps yet";
    const score = this.scores.length ? `; accuracy ${percent(this.scores.at(-1)[1])}` : "";
    const held = this.held.length ? `; validation loss ${decimal(this.held.at(-1)[1])}` : "";
    return `Training loss after ${this.losses.length} steps: ${decimal(this.losses.at(-1))}, first loss ${decimal(this.losses[0])}${held}${score}`;
  }
}
