// Outputs of the network for the inspected sequence: the most likely tokens at every position that has a target, or the
// classes. After a change of the network, it also shows the outputs and the loss before the change.

class Outputs {
  constructor(place) {
    this.place = place;
  }

  show(seen, before, info) {
    const parts = [];
    if (Number.isFinite(seen.loss)) {
      const was = before && Number.isFinite(before.loss) ? [make("span", {class: "before"}, decimal(before.loss)), " → "] : [];
      parts.push(make("p", {class: "loss"}, "loss ", ...was, make("b", {}, decimal(seen.loss))));
    }
    const isClassifier = info.task === "reviews" || info.task === "digits";
    parts.push(isClassifier ? this.classes(seen, before) : this.positions(seen, before));
    this.place.replaceChildren(...parts);
  }

  row(seen, c, V) {
    return seen.probabilities.subarray(c * V, (c + 1) * V);
  }

  classes(seen, before) {
    const rows = seen.outputs.map((name, i) => {
      const meter = make("span", {class: "meter", style: `--share:${seen.probabilities[i]};--before:${before?.probabilities?.[i] ?? -1}`});
      const share = make("span", {class: "share"}, percent(seen.probabilities[i], 1)), kind = name === seen.targets[0] && "target";
      return make("li", {class: kind}, make("span", {class: "name"}, name), meter, share);
    });
    return make("ul", {class: "classes"}, ...rows);
  }

  positions(seen, before) {
    const names = seen.outputs, V = names.length, list = make("ol", {class: "said"}), many = seen.tokens.length > 16;
    seen.tokens.forEach((token, c) => {
      const target = seen.targets?.[c] ?? null;
      if (target === null && seen.targets?.some((one) => one !== null)) return;
      const row = this.row(seen, c, V), order = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, many ? 1 : 3);
      const item = make("li", {class: target === null ? null : names[order[0]] === target ? "right" : "wrong"});
      item.append(make("span", {class: "from"}, shownToken(token)));
      for (const v of order) {
        const meter = make("span", {class: "meter", style: `--share:${row[v]};--before:${before ? this.row(before, c, V)[v] : -1}`});
        const name = names[v];
        const kind = name === target ? "guess target" : "guess";
        item.append(make("span", {class: kind}, make("b", {}, shownToken(name)), meter, many ? "" : percent(row[v])));
      }
      list.append(item);
    });
    return list;
  }
}
