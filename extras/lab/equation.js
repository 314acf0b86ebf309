// Equations as they stand in the chapters, by their tags, and which of them makes an array of a block.

// The tag of the equation of a block that has this array on its left; "" where there is none. Norms of a block have
// their own chapter.
function tagOf(block, name) {
  const norm = name.match(/^(d_)?(?:\w+_)?norm_(weight|bias)_d$/);
  if (norm) return tagOf("layernorm", `${norm[1] ?? ""}${norm[2]}_d`);
  const made = labEquations.makes[block === "quadratic" ? "metric" : block] ?? {};
  const stem = name.replace(/_[a-z]+$/, "");
  return made[name] ?? made[stem] ?? "";
}

// The block that a layer of the network is: blocks.0.mixer of a network of dot is dot.
function blockOf(layer, info) {
  if (layer === "") return "embedding";
  if (/^(loss|logits)$/.test(layer)) return "cross_entropy";
  const found = info.layers.find((one) => one.name === layer);
  if (found?.mixer) return found.mixer;
  const last = layer.split(".").at(-1);
  return last === "final_norm" ? "layernorm" : last;
}

// A layer in words: "layer 0: dot", not the name of its weights, blocks.0.mixer.
function layerName(layer, info) {
  const names = {"": "embedding", cross_entropy: "loss", final_norm: "final norm"};
  const [, number, part] = layer.match(/blocks\.(\d+)\.(\w+)$/) ?? [];
  if (part === undefined) return names[layer] ?? layer;
  return `layer ${number}: ${{ffn: "feed-forward", conv: "convolution"}[part] ?? blockOf(layer, info)}`;
}

// A link to an equation, by its tag; nothing where there is none.
const tagLink = (tag) => {
  const found = labEquations.equations[tag];
  return found ? [make("a", {class: "tag", href: found.href}, `(${tag})`)] : [];
};

// An equation with a link to its chapter; its name alone where there is no such equation.
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
