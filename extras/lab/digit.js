// A field to draw a digit with the pointer, with the resolution of the network's input.

class DigitPad {
  // drawn(pixels): called with the pixels row by row, from 0 (paper) to 1 (ink).
  constructor(place, side, drawn) {
    this.side = side;
    this.drawn = drawn;
    this.ink = new Float32Array(side * side);
    this.canvas = make("canvas", {class: "pad", role: "img", "aria-label": "draw a digit here with a pointer"});
    const clear = make("button", {type: "button"}, "Clear");
    clear.onclick = () => this.clear();
    place.replaceChildren(this.canvas, clear);
    let last;
    const at = ({clientX, clientY}) => {
      const box = this.canvas.getBoundingClientRect();
      return [(clientX - box.left) / box.width * side, (clientY - box.top) / box.height * side];
    };
    this.canvas.onpointerdown = (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      last = at(event);
      this.stroke(last, last);
    };
    this.canvas.onpointermove = (event) => {
      if (!this.canvas.hasPointerCapture(event.pointerId)) return;
      const next = at(event);
      this.stroke(last, next);
      last = next;
    };
    this.draw();
    colours.changed.push(() => this.draw());
  }

  clear() {
    this.ink.fill(0);
    this.draw();
    this.drawn(this.pixels());
  }

  pixels() {
    return this.ink.slice();
  }

  // Draws a line with soft borders, about as thick as the lines in the training data.
  stroke([ax, ay], [bx, by]) {
    const radius = this.side / 18, length2 = (bx - ax) ** 2 + (by - ay) ** 2;
    for (let y = 0; y < this.side; ++y) {
      for (let x = 0; x < this.side; ++x) {
        const px = x + 0.5, py = y + 0.5;
        const part = length2 > 0 ? Math.min(1, Math.max(0, ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length2)) : 0;
        const far = Math.hypot(px - ax - part * (bx - ax), py - ay - part * (by - ay));
        const i = y * this.side + x;
        this.ink[i] = Math.max(this.ink[i], Math.min(1, Math.max(0, radius + 0.5 - far)));
      }
    }
    this.draw();
    this.drawn(this.pixels());
  }

  draw() {
    paint(this.canvas, this.ink.map((x) => x * x), this.side, this.side, {signed: false, largest: 1});
  }
}
