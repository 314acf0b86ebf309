// One place of an equation lights all others. Without this script the links work too, and the style sheet lights the
// places of the tag in the address.
(() => {
  const root = document.documentElement, wide = matchMedia("(min-width: 1120px)");
  root.classList.add("js");
  const all = (css) => [...document.querySelectorAll(css)];
  const saved = (key, value) => {
    try {
      if (value) localStorage[key] = value;
      return localStorage[key];
    } catch {} // files may have no storage
  };
  // A button goes through values.
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
  // Lines of no equation get their ids.
  for (const code of all(".code")) [...code.children].forEach((li, i) => (li.id ||= code.previousSibling.id + (i + 1)));
  button("Colours", ["system", "light", "dark"], (theme) => (root.dataset.theme = theme));

  // What was pointed at is lit while its equation is in view.
  let pointed;
  const point = (tags) => {
    pointed = document.querySelector(`figure[data-t="${tags[0]}"]`);
    light(tags);
  };
  const light = (tags) => {
    all(".lit").forEach((place) => place.classList.remove("lit"));
    for (const tag of tags) all(`[data-t~="${tag}"]`).forEach((place) => place.classList.add("lit"));
  };
  const tagsOf = (at) => at.closest?.("[data-t]")?.dataset.t.split(" ");
  for (const event of ["pointerover", "focusin"]) {
    addEventListener(event, ({target}) => tagsOf(target) && point(tagsOf(target)));
  }

  // Brings a tag's first line into every listing, without moving the page.
  const bring = (tag, except) => {
    for (const listing of wide.matches ? all(".beside .listing") : []) {
      const line = listing.querySelector(`li[data-t~="${tag}"]`);
      if (!line || listing === except) continue;
      const below = line.getBoundingClientRect().top - listing.getBoundingClientRect().top;
      listing.scrollTo({top: listing.scrollTop + below - listing.clientHeight / 3});
    }
  };
  addEventListener("click", ({target, offsetX}) => {
    const tags = tagsOf(target), line = target.closest(".code li");
    if (line === target && offsetX < 48) history.replaceState(null, "", "#" + line.id);
    if (!tags || target.closest("a:not(.tag), summary")) return;
    point(tags);
    bring(tags[0], line?.closest(".listing"));
    if (line && wide.matches) pointed.scrollIntoView({block: "center"});
  });

  let following, reading, arrived; // where the address led
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
    arrived = place;
    if (!tags) return place && location.replace(location.hash);
    point(tags);
    bring(tags[0], place.closest(".listing"));
  };
  addEventListener("hashchange", arrive);
  arrive();
  addEventListener("beforeprint", () => all("details").forEach((fold) => (fold.open = true)));
})();
