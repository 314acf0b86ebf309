// One place of an equation lights all others: its figure and its lines on every device. Without this script the links
// work too, and the style sheet lights the places of the tag in the address.
(() => {
  const root = document.documentElement, wide = matchMedia("(min-width: 1120px)");
  root.classList.add("js");
  const all = (selector) => [...document.querySelectorAll(selector)];
  const saved = (key, value) => {
    try {
      if (value) localStorage[key] = value;
      return localStorage[key];
    } catch {} // a page from a file may have no storage
  };
  // A button that goes through the values of a setting.
  const button = (name, values, apply) => {
    const made = document.createElement("button");
    let at = Math.max(0, values.indexOf(saved(name)));
    const show = () => {
      made.textContent = name + ": " + values[at];
      apply(values[at]);
    };
    made.className = name.split(" ")[0];
    made.onclick = () => {
      at = (at + 1) % values.length;
      saved(name, values[at]);
      show();
    };
    document.querySelector("header").append(made);
    show();
  };
  button("Colours", ["system", "light", "dark"], (theme) => (root.dataset.theme = theme));

  // What a reader points at stays lit as long as its equation is in view.
  let pointed;
  const point = (tags) => {
    pointed = document.querySelector(`figure[data-t="${tags[0]}"]`);
    light(tags);
  };
  const light = (tags) => {
    all(".lit").forEach((place) => place.classList.remove("lit"));
    for (const tag of tags) all(`[data-t~="${tag}"]`).forEach((place) => place.classList.add("lit"));
  };
  const tagsOf = (element) => element.closest?.("[data-t]")?.dataset.t.split(" ");
  for (const event of ["pointerover", "focusin"]) {
    document.addEventListener(event, ({target}) => tagsOf(target) && point(tagsOf(target)));
  }

  // Brings the first line of a tag into every listing beside the chapter, without moving the page itself.
  const bring = (tag, except) => {
    for (const listing of wide.matches ? all(".beside .listing") : []) {
      const line = listing.querySelector(`li[data-t~="${tag}"]`);
      if (!line || listing === except) continue;
      const below = line.getBoundingClientRect().top - listing.getBoundingClientRect().top;
      listing.scrollTo({top: listing.scrollTop + below - listing.clientHeight / 3});
    }
  };
  document.addEventListener("click", ({target, offsetX}) => {
    const tags = tagsOf(target), line = target.closest(".code li");
    if (line === target && offsetX < 48) history.replaceState(null, "", "#" + line.id); // its number was clicked
    if (!tags || target.closest("a:not(.tag), summary")) return;
    point(tags);
    bring(tags[0], line?.closest(".listing"));
    if (line && wide.matches) pointed.scrollIntoView({block: "center"});
  });

  let following, reading, arrived; // at the place in the address, not left yet
  for (const event of ["keydown", "pointermove", "wheel"]) addEventListener(event, () => (arrived = 0));
  const figures = all(".beside").length ? all("figure[data-t]") : [];
  if (figures.length) button("Listings follow", ["on", "off"], (value) => (following = value === "on"));
  addEventListener("scroll", () => requestAnimationFrame(() => {
    const box = pointed?.getBoundingClientRect();
    if (arrived || (box && box.bottom > 0 && box.top < innerHeight)) return;
    pointed = null;
    const nearest = figures.findLast((figure) => figure.getBoundingClientRect().top < innerHeight / 3);
    if (!following || !nearest || nearest === reading) return;
    reading = nearest;
    light([nearest.dataset.t]);
    bring(nearest.dataset.t);
  }), {passive: true});

  const arrive = () => {
    const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const tags = place && tagsOf(place);
    arrived = tags;
    if (!tags) return;
    point(tags);
    bring(tags[0], place.closest(".listing"));
  };
  addEventListener("hashchange", arrive);
  arrive();
  addEventListener("beforeprint", () => all("details").forEach((folded) => (folded.open = true)));
})();
