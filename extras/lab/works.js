// Progress of longer work: a name and a bar next to the form that started it. All controls are disabled meanwhile.

const PATIENCE = 150;  // milliseconds before a bar is shown

class Works {
  // root: parent of the controls; places: message elements of the forms, by name.
  constructor(root, places) {
    Object.assign(this, {root, places});
    this.going = new Set();
    this.disabled = [];
  }

  // Returns the function that ends the work.
  begin(place, words) {
    const work = {bar: make("p", {class: "busy", role: "status"}, make("progress", {"aria-label": words}), ` ${words} …`)};
    const timer = setTimeout(() => {
      this.going.add(work);
      this.places[place].after(work.bar);
      this.update();
    }, PATIENCE);
    return () => {
      clearTimeout(timer);
      work.bar.remove();
      if (this.going.delete(work)) this.update();
    };
  }

  // The train button stays enabled, because a click on it is stored.
  update() {
    const busy = this.going.size > 0;
    this.root.setAttribute("aria-busy", String(busy));
    if (busy) {
      if (this.root.contains(document.activeElement)) this.focused = document.activeElement;
      const controls = this.root.querySelectorAll(":is(button, input, select, textarea):not(#train, #stop, :disabled)");
      for (const control of controls) control.disabled = true;
      this.disabled.push(...controls);
      return;
    }
    for (const control of this.disabled.splice(0)) control.disabled = false;
    if (document.activeElement === document.body) this.focused?.focus({preventScroll: true});
    this.focused = undefined;
  }
}
