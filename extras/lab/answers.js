// Examples of the test set with the answers of the network. A text model shows generated text instead.

const SHOWN_EXAMPLES = 8;

class Answers {
  // chosen(example): called with the example to inspect.
  constructor(place, engine, chosen) {
    Object.assign(this, {place, engine, chosen});
  }

  async open(info) {
    this.info = info;
    this.examples = [];
    if (info.task === "text") {
      if (info.examples) this.examples.push(await this.engine.example(0));
      this.text = make("p", {class: "written", "aria-label": "generated text"});
      return this.place.replaceChildren(this.text);
    }
    // Examples spread over the whole test set, because the arrays of the task sort are stored in order.
    for (let i = 0; i < Math.min(SHOWN_EXAMPLES, info.examples); ++i) {
      this.examples.push(await this.engine.example(Math.floor((i + 0.5) * info.examples / SHOWN_EXAMPLES)));
    }
    this.rows = this.examples.map((example) => {
      const given = make("span", {class: "given"}), answer = make("span", {class: "answer"});
      const arrow = make("span", {class: "arrow", "aria-hidden": "true"}, "→");
      const row = make("button", {type: "button", class: "example"}, given, arrow, answer);
      if (info.task === "digits") given.append(this.picture(example.input));
      else given.textContent = example.input;
      row.onclick = () => this.chosen(example);
      return {row, answer};
    });
    this.place.replaceChildren(...this.rows.map(({row}) => row));
    this.place.dataset.task = info.task;
  }

  picture(pixels) {
    const side = Math.round(Math.sqrt(pixels.length));
    const canvas = make("canvas", {class: "pixels", role: "img", "aria-label": "a drawn digit"});
    paint(canvas, pixels.map((x) => x * x), side, side, {signed: false, largest: 1});
    return canvas;
  }

  // Requests all answers again.
  async refresh() {
    if (this.info.task === "text") return;
    for (let i = 0; i < this.examples.length; ++i) {
      const {answer, right} = await this.engine.answer(asked(this.examples[i]));
      const {row, answer: place} = this.rows[i], target = this.examples[i].target;
      row.classList.toggle("right", !!right);
      const words = String(answer).split(" "), wanted = String(target ?? "").split(" ");
      place.replaceChildren(...words.flatMap((word, at) => [
        ...(at ? [" "] : []),
        make("b", {class: word === wanted[at] ? "right" : "wrong"}, word),
      ]));
    }
  }

  write(text) {
    if (this.text) this.text.textContent = text;
  }
}
