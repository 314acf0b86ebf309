// Helpers that build the page: elements, and numbers and names in readable form.
const find = (id) => document.getElementById(id);

// make("p", {class: "note"}, "text", child): names that begin with "on" become properties, all others attributes.
function make(name, given = {}, ...parts) {
  const drawn = /^(svg|path|rect|circle|line|text|g|title)$/.test(name);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...parts);
  return made;
}

// Formats a number with a minus sign. Very small and very large numbers have an exponent if more than 2 digits are shown.
function decimal(value, digits = 4) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const extreme = digits > 2 && size !== 0 && (size < 10 ** -digits || size >= 1e6);
  const text = extreme ? value.toExponential(2) : value.toFixed(digits);
  return text.replace("-", "−").replace(/^−(0(\.0*)?)$/, "$1");
}
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const percent = (share, digits = 0) => (100 * share).toFixed(digits) + " %";

// Text of a single token: white space becomes a symbol. The names of answer digits begin with =, which is removed.
const shownToken = (text) => ({" ": "␣", "\n": "⏎", "\t": "⇥"})[text] ?? text.replace(/^=(?=\d)/, "");

// Readable number of bytes.
function size(bytes) {
  if (bytes >= 1 << 20) return `${(bytes / (1 << 20)).toFixed(1)} MiB`;
  return bytes >= 1024 ? `${(bytes / 1024).toFixed(1)} kiB` : `${bytes} B`;
}

// Offers a file as a download.
function handOut(name, content) {
  const link = make("a", {download: name, href: URL.createObjectURL(new Blob([content]))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
