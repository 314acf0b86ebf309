// A checkpoint in and out, what a model writes, and how well it foretells a text. Nothing leaves the machine.

class OwnModel {
  // loaded(file): called with a file that is dropped anywhere on the page. attempt(form, words, job): shows work and errors.
  constructor(place, engine, loaded, attempt) {
    Object.assign(this, {engine, attempt});
    const file = place.querySelector("[type=file]"), part = (name) => place.querySelector(name);
    file.onchange = () => {
      if (file.files[0]) loaded(file.files[0]);
      file.value = "";
    };
    const root = document.documentElement;
    addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      root.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => event.relatedTarget || root.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      root.classList.remove("dropping");
      if (!event.dataTransfer?.files[0]) return;
      event.preventDefault();
      loaded(event.dataTransfer.files[0]);
    });
    part(".save").onclick = () => this.attempt("file", "Saving", async () => handOut("model.safetensors", await this.engine.save()));
    this.writing = part(".write");
    this.writing.onsubmit = (event) => {
      event.preventDefault();
      this.attempt("write", "Generating", () => this.write());
    };
    this.scoring = part(".score");
    this.scoring.onsubmit = (event) => {
      event.preventDefault();
      this.attempt("score", "Evaluating", () => this.score());
    };
  }

  // sample: a text of this network. Prompts that it cannot spell are replaced by the beginning of its sample.
  show(info, sample) {
    const isText = info.task === "text", known = new Set(info.vocabulary);
    this.writing.hidden = this.scoring.hidden = !isText;
    for (const form of [this.writing, this.scoring]) form.querySelector("output").replaceChildren();
    if (!isText) return;
    for (const [field, length] of [[this.writing.elements.prompt, 12], [this.scoring.elements.text, 80]]) {
      const isSpelled = [...field.value].every((letter) => known.has(letter)) || known.size === 256;
      if (!isSpelled) field.value = [...sample].slice(0, length).join("");
    }
  }

  async write() {
    const {elements} = this.writing, place = this.writing.querySelector("output");
    this.engine.onwritten = (text) => (place.textContent = text);
    const {text} = await this.engine.write({
      prompt: elements.prompt.value,
      tokens: +elements.tokens.value,
      temperature: +elements.temperature.value,
      seed: +elements.seed.value,
    });
    place.textContent = text;
  }

  // Every character but the first, which nothing foretells, over a bar of the colour of its loss.
  async score() {
    const place = this.scoring.querySelector("output");
    const {loss, characters, losses} = await this.engine.score(this.scoring.elements.text.value);
    const shown = characters.map((letter, i) => {
      if (!i) return letter;
      return make("span", {style: `border-color:${css(colourOf(losses[i], 8, true))}`, title: `${decimal(losses[i], 2)} nats`}, letter);
    });
    place.replaceChildren(make("b", {}, `${decimal(loss)} nats per character`), make("p", {class: "scored"}, ...shown));
  }
}
