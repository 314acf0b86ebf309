// Presentation mode: larger type and one section at a time. Arrow or page keys change the section, and Escape ends the mode.
// The mode is not stored.

class Presenter {
  // root: parent of the sections; button: starts the mode; bar: controls at the bottom of the window.
  constructor(root, button, bar) {
    Object.assign(this, {root, button, bar});
    const [back, title, next, train, leave] = bar.children;
    Object.assign(this, {title, train});
    button.onclick = () => this.begin();
    back.onclick = () => this.move(-1);
    next.onclick = () => this.move(1);
    train.onclick = () => find("train").click();
    leave.onclick = () => this.end();
    new MutationObserver(() => this.tell()).observe(find("train"), {childList: true, attributes: true});
    addEventListener("keydown", (event) => this.key(event));
  }

  get sections() {
    return [...this.root.querySelectorAll(":scope > section")].filter((one) => !one.hidden);
  }

  begin() {
    this.top = scrollY;
    this.at = 0;
    document.documentElement.classList.add("presenting");
    this.bar.hidden = false;
    this.move(0);
    this.bar.children[2].focus({preventScroll: true});
  }

  end() {
    document.documentElement.classList.remove("presenting");
    this.bar.hidden = true;
    for (const one of this.sections) one.classList.remove("on");
    scrollTo(0, this.top);
    this.button.focus({preventScroll: true});
  }

  move(by) {
    const {sections} = this;
    this.at = Math.min(sections.length - 1, Math.max(0, this.at + by));
    sections.forEach((one, i) => one.classList.toggle("on", i === this.at));
    this.tell();
    scrollTo(0, 0);
  }

  tell() {
    if (this.bar.hidden) return;
    const {sections, at} = this, name = sections[at].querySelector("h1, h2").textContent;
    this.title.textContent = `${at + 1} of ${sections.length}: ${name}`;
    this.train.textContent = find("train").textContent;
    this.train.disabled = find("train").disabled;
  }

  key(event) {
    if (this.bar.hidden || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") return this.end();
    const by = {PageDown: 1, PageUp: -1, ArrowRight: 1, ArrowLeft: -1}[event.key];
    // Fields and pictures with the focus use the arrow keys themselves.
    const isOwn = event.key.startsWith("Arrow") && event.target.closest("input, select, textarea, canvas, pre");
    if (!by || isOwn) return;
    event.preventDefault();
    this.move(by);
  }
}
