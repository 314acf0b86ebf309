// Maps of the attention weights per layer and head. In a pooling the rows are normalized prefixes of one row of weights, so
// it is drawn as strips: the weight of every position in the last average, and the averaged or passed values.

const POOLINGS = new Set(["additive", "leap", "average"]);
const isPooling = (layer, info) => POOLINGS.has(blockOf(layer, info));

// Bar chart of numbers, from 0 to the largest. The style sheet sets its size.
function bars(values, largest = largestOf(values)) {
  let d = "";
  values.forEach((value, i) => {
    const high = largest > 0 ? 24 * Math.max(0, value) / largest : 0;
    d += `M${i + 0.06} 24v${-high.toFixed(2)}h.88V24z`;
  });
  const svg = make("svg", {viewBox: `0 0 ${values.length} 24`, preserveAspectRatio: "none", "aria-hidden": "true", class: "bars"});
  svg.append(make("path", {d}));
  return svg;
}

class Maps {
  // chosen({layer, name, head}): called when the user chooses a head.
  constructor(place, chosen) {
    this.place = place;
    this.chosen = chosen;
    colours.changed.push(() => this.seen && this.show(this.seen, this.info, this.choice));
  }

  show(seen, info, choice) {
    Object.assign(this, {seen, info, choice});
    const shapeOf = (one) => [one.layer, blockOf(one.layer, info), one.name, one.extents];
    const shapes = seen.layers.flatMap((layer) => seen.weightsOf(layer).map(shapeOf));
    const key = JSON.stringify(shapes);
    if (key !== this.key) this.build(seen, info);
    this.key = key;
    for (const one of this.heads) this.paint(one);
  }

  build(seen, info) {
    this.heads = [];
    this.place.replaceChildren(...seen.layers.flatMap((layer) => {
      const all = seen.weightsOf(layer);
      if (!all.length) return [];
      return all.map((weights) => {
        const strips = isPooling(layer, info);
        const row = make("div", {class: strips ? "heads strips" : "heads"});
        for (let head = 0; head < weights.extents[0]; ++head) {
          const picture = strips ? make("span", {class: "strip"}) : make("canvas");
          const caption = make("span", {class: "caption"}, `head ${head}`);
          const button = make("button", {type: "button", class: "head", "aria-pressed": "false"}, picture, caption);
          const one = {layer, name: weights.name, head, strips, button, picture};
          button.onclick = () => this.chosen(one);
          this.heads.push(one);
          row.append(button);
        }
        const which = weights.name.match(/^(.*?)_?weight_/)[1];
        const said = `${layerName(layer, info)}${which ? `, pooling ${which}` : ""}`;
        return make("div", {class: "layer", role: "group", "aria-label": said}, make("p", {class: "label"}, said), row);
      });
    }));
  }

  paint(one) {
    const weights = this.seen.array(one.layer, one.name), [, C, S] = weights.extents, map = weights.part(one.head);
    const on = this.choice && ["layer", "name", "head"].every((key) => this.choice[key] === one[key]);
    one.button.ariaPressed = String(!!on);
    const isIts = ({array}) => !array || array === "metric_nkk" || array === this.seen.logitsOf(weights)?.name;
    const touched = this.seen.changes?.some((change) => change.layer === one.layer && change.head === one.head && isIts(change));
    one.button.classList.toggle("touched", !!touched);
    one.button.setAttribute("aria-label", `${layerName(one.layer, this.info)}, head ${one.head}${touched ? ", changed" : ""}`);
    if (!one.strips) return paint(one.picture, map, C, S, {signed: false, largest: 1});
    one.picture.replaceChildren(bars([...map.subarray((C - 1) * S)]));
    const average = this.seen.averageOf(weights), passed = this.seen.array(one.layer, "passed_bcn");
    if (average) one.picture.append(this.averaged(average, one.head, weights.extents[0]));
    const N = weights.extents[0], passes = passed && Array.from({length: C}, (_, c) => passed.values[c * N + one.head]);
    if (passes) one.picture.append(bars(passes, 1));
  }

  // Draws the average of a head with one column per position and one row per channel.
  averaged({values, extents: [C, D]}, head, N) {
    const K = D / N, turned = new Float32Array(C * K), canvas = make("canvas", {"aria-hidden": "true"});
    for (let c = 0; c < C; ++c) for (let k = 0; k < K; ++k) turned[k * C + c] = values[c * D + head * K + k];
    paint(canvas, turned, K, C);
    return canvas;
  }
}
