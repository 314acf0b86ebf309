// Highlights all places of an equation, and shows the code of one device beside a chapter. Without this script the links
// also work, all code is shown one file below the other, and the style sheet highlights the tag in the address.
(() => {
  const on = addEventListener, root = document.documentElement, wide = matchMedia("(min-width: 1120px)");
  root.classList.add("js");
  const all = (css) => [...document.querySelectorAll(css)];
  const box = (place) => place.getBoundingClientRect();
  // localStorage may be missing on pages opened from files.
  const saved = (key, value) => {
    try {
      if (value) localStorage[key] = value;
      return localStorage[key];
    } catch {}
  };
  const button = (place) => place.appendChild(document.createElement("button"));
  // Adds a button that cycles through values.
  const choice = (name, values, apply) => {
    let at = Math.max(0, values.indexOf(saved(name)));
    const made = button(document.querySelector("header"));
    made.className = name.split(" ")[0];
    const show = () => {
      made.textContent = name + ": " + values[at];
      apply(values[at]);
    };
    made.onclick = () => {
      at = (at + 1) % values.length;
      saved(name, values[at]);
      show();
    };
    show();
  };
  // Opens the folds around an element.
  const reveal = (place) => {
    for (let fold = place; (fold = fold.closest("details:not([open])")); ) fold.open = true;
  };
  // Listings are open beside the chapter, and closed below it.
  const fold = () => all(".listing > details").forEach((file) => (file.open = wide.matches));
  wide.onchange = fold;
  fold();
  on("beforeprint", () => {
    const folds = all(".fold:not([open])");
    folds.forEach((one) => (one.open = true));
    on("afterprint", () => folds.forEach((one) => (one.open = false)), {once: true});
  });
  // Sets the ids of lines without an equation.
  for (const code of all(".code")) {
    let at = 0;
    for (const li of code.querySelectorAll("li:not([class])")) {
      at = li.value || at + 1;
      li.id ||= code.previousSibling.id + at;
    }
  }
  choice("Colours", ["system", "light", "dark"], (theme) => (root.dataset.theme = theme));

  // `pointed`: the last equation selected by pointer or focus. Its tags stay highlighted while it is in view.
  let pointed, brought;
  const point = (tags) => {
    pointed = document.querySelector(`figure[data-t="${tags[0]}"]`);
    light(tags);
  };
  const light = (tags) => {
    all(".lit").forEach((place) => place.classList.remove("lit"));
    for (const tag of tags) all(`[data-t~="${tag}"]`).forEach((place) => place.classList.add("lit"));
  };
  const tagsOf = (at) => at.closest?.("[data-t]")?.dataset.t.split(" ");
  for (const event of ["pointerover", "focusin"]) on(event, ({target}) => tagsOf(target) && point(tagsOf(target)));

  // Scrolls the listings to the first line of a tag, or to a line, without moving the page.
  const listings = all(".beside .listing");
  const show = (listing, line) => {
    reveal(line);
    listing.scrollTo({top: listing.scrollTop + box(line).top - box(listing).top - listing.clientHeight / 3});
  };
  const bring = (tag, except) => {
    brought = tag;
    for (const listing of wide.matches ? listings : []) {
      // A listing that has not been scrolled starts at its first tagged line.
      const find = (css) => listing.querySelector("li" + css);
      const line = find(`[data-t~="${tag}"]`) ?? (!listing.scrollTop && find("[data-t]"));
      if (line && listing !== except) show(listing, line);
    }
  };
  const choose = (id) => {
    root.dataset.pane = id;
    all(".Panes button").forEach((one) => (one.ariaPressed = one.value === id));
    if (brought) bring(brought);
  };
  if (listings[1]) {
    const bar = document.createElement("nav");
    bar.className = "Panes";
    bar.ariaLabel = "Code";
    listings[0].before(bar);
    for (const {id, ariaLabel} of listings) {
      const made = button(bar);
      made.textContent = ariaLabel;
      made.value = id;
      made.onclick = () => choose(saved("pane", id) ?? id);
    }
    choose(saved("pane") ?? "plain");
  }
  on("click", ({target, offsetX}) => {
    const tags = tagsOf(target), line = target.closest(".code li[id]");
    if (line === target && offsetX < 48) history.replaceState(0, 0, "#" + line.id);
    // The browser sends no event if the same link is followed twice.
    if (target.closest("a[href^='#']")) setTimeout(arrive);
    if (!tags || target.closest("a:not(.tag), summary")) return;
    point(tags);
    bring(tags[0], line?.closest(".listing"));
    if (line && wide.matches) pointed.scrollIntoView({block: "center"});
  });

  // `arrived`: the element that the address names.
  let following, reading, arrived;
  for (const event of ["keydown", "pointermove", "wheel"]) on(event, () => (arrived = 0));
  const figures = listings[0] ? all("figure[data-t]") : [];
  if (figures[0]) {
    bring(figures[0].dataset.t);
    choice("Listings follow the text", ["on", "off"], (value) => (following = value === "on"));
  }
  on("scroll", () => {
    if (arrived || (pointed && box(pointed).bottom > 0 && box(pointed).top < innerHeight)) return;
    pointed = null;
    const nearest = figures.findLast((figure) => box(figure).top < innerHeight / 3);
    if (!following || !nearest || nearest === reading) return;
    reading = nearest;
    light([nearest.dataset.t]);
    bring(nearest.dataset.t);
  });

  const arrive = () => {
    const place = document.getElementById(location.hash.slice(1));
    const tags = place && tagsOf(place), listing = place?.closest(".beside .listing");
    arrived = place;
    if (place) reveal(place.matches(".beside > *") ? place.querySelector("summary") : place);
    if (tags) {
      point(tags);
      bring(tags[0], listing);
    } else if (place) location.replace(location.hash);
    if (!listing) return;
    if (!wide.matches) return place.scrollIntoView();
    choose(listing.id);
    show(listing, place);
  };
  on("hashchange", arrive);
  arrive();
})();
