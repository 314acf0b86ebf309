// Equations of the chapters by their tags, and the equation that computes each array of a block.

// Returns the tag of the equation that has this array of a block on its left side, or "". The norms of a block have the
// equations of layernorm.
function tagOf(block, name) {
  const norm = name.match(/^(d_)?(?:\w+_)?norm_(weight|bias)_d$/);
  if (norm) return tagOf("layernorm", `${norm[1] ?? ""}${norm[2]}_d`);
  const made = labEquations.makes[block === "quadratic" ? "metric" : block] ?? {};
  const stem = name.replace(/_[a-z]+$/, "");
  return made[name] ?? made[stem] ?? "";
}

// Returns the kind of a layer: blocks.0.mixer is dot in a network with the mixer dot.
function blockOf(layer, info) {
  if (layer === "") return "embedding";
  if (/^(loss|logits)$/.test(layer)) return "cross_entropy";
  const found = info.layers.find((one) => one.name === layer);
  if (found?.mixer) return found.mixer;
  const last = layer.split(".").at(-1);
  return last === "final_norm" ? "layernorm" : last;
}

// Returns the readable name of a layer: "layer 0: dot" for blocks.0.mixer.
function layerName(layer, info) {
  const names = {"": "embedding", cross_entropy: "loss", final_norm: "final norm"};
  const [, number, part] = layer.match(/blocks\.(\d+)\.(\w+)$/) ?? [];
  if (part === undefined) return names[layer] ?? layer;
  return `layer ${number}: ${{ffn: "feed-forward", conv: "convolution"}[part] ?? blockOf(layer, info)}`;
}

// Returns a link to the equation with this tag, or an empty list.
const tagLink = (tag) => {
  const found = labEquations.equations[tag];
  return found ? [make("a", {class: "tag", href: found.href}, `(${tag})`)] : [];
};

// Returns an equation with a link to its chapter. The element is empty if no equation has this tag.
function equation(tag, loops = false) {
  const found = labEquations.equations[tag];
  const place = make("div", {class: "formula"});
  if (!found) return place;
  place.innerHTML = found.math;
  place.append(make("a", {class: "tag", href: found.href}, `(${tag})`));
  if (loops && found.loop) {
    const code = make("div");
    code.innerHTML = found.loop;
    place.append(code);
  }
  return place;
}
