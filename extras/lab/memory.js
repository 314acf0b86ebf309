// Memory of a network: its parts and the arrays of each part, in order of decreasing size.

// Contents of a part in addition to its named arrays.
const REST = {activations: "arrays that are not shown", gradients: "sums of shards, and padding to 64 bytes"};

class Memory {
  // read(): reads the parts from the engine.
  constructor(place, read) {
    Object.assign(this, {place, read});
    place.parentElement.ontoggle = () => this.draw();
  }

  show(seen, info) {
    this.info = info;
    this.draw();
  }

  // Draws once per network, when the list is visible.
  async draw() {
    const {info} = this;
    if (!info || info === this.drawn || !this.place.checkVisibility()) return;
    this.drawn = info;
    try {
      const {parts, activations} = await this.read();
      if (info !== this.info) return;
      parts.sort((a, b) => b.bytes - a.bytes);
      const all = parts.reduce((sum, part) => sum + part.bytes, 0);
      const told = make("p", {class: "note"}, `Total ${size(all)}, counted as in a terminal: ${this.counted(parts)}.`);
      this.place.replaceChildren(told, ...parts.map((part) => this.part(part, all, activations)));
    } catch {
      this.drawn = undefined;  // another network was opened during the request
    }
  }

  // Returns the text that a program prints in a terminal.
  counted(parts) {
    const bytes = (...names) => parts.reduce((sum, {name, bytes}) => sum + (names.includes(name) ? bytes : 0), 0);
    const all = [["weights, gradients and moments", bytes("weights", "gradients", "moments")], ["activations", bytes("activations")],
      ["borders of chunks", bytes("borders of chunks")], ["scratch", bytes("scratch")]];
    const some = all.filter(([, bytes], i) => bytes || i !== 2);
    return some.map(([name, bytes]) => `${name} ${(bytes / (1 << 20)).toFixed(1)} MiB`).join(", ");
  }

  arraysOf({name, bytes}, activations) {
    if (name === "activations") return activations.map((one) => ({...one, name: this.named(one.layer, one.name)}));
    if (!["weights", "gradients", "moments"].includes(name)) return [];
    const kinds = {weights: [""], gradients: ["gradient of "], moments: ["first moment of ", "second moment of ", "average of "]}[name];
    const count = ({extents}) => extents.reduce((product, extent) => product * extent, 1), {weights} = this.info;
    const each = 4 * weights.reduce((sum, one) => sum + count(one), 0);
    return kinds.slice(0, Math.floor(bytes / each)).flatMap((kind) =>
      weights.map((one) => {
        const at = one.name.lastIndexOf("."), name = this.named(one.name.slice(0, Math.max(0, at)), one.name.slice(at + 1));
        return {...one, name: kind + name, type: "float32", bytes: 4 * count(one)};
      }));
  }

  named(layer, name) {
    return `${layerName(layer, this.info)}: ${name}`;
  }

  part(part, all, activations) {
    const arrays = this.arraysOf(part, activations).sort((a, b) => b.bytes - a.bytes);
    const named = arrays.reduce((sum, {bytes}) => sum + bytes, 0), rest = part.bytes - named;
    const meter = make("span", {class: "meter", style: `--share:${part.bytes / all}`});
    const head = [make("span", {class: "name"}, part.name), meter, make("span", {class: "share"}, size(part.bytes))];
    if (!arrays.length) return make("p", {class: "part"}, ...head);
    const row = (...cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, ...[cell].flat())));
    const broken = (name) => name.split(/(?<= )/).flatMap((part) => [part, make("wbr")]);
    const table = make("table", {}, ...arrays.map(({name, extents, type, bytes}) => row(broken(name), extents.join(" × "), type, size(bytes))));
    if (rest > 0) table.append(row(REST[part.name] ?? "padding to 64 bytes", "", "", size(rest)));
    return make("details", {}, make("summary", {class: "part"}, ...head), make("div", {}, table));
  }
}
