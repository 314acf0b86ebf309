// Colours for numbers: neighbouring colours have equal distances in OKLab (Ottosson, "A perceptual color space for image
// processing", 2020). Weights range from the page colour to a deep blue. Signed numbers range to blue and to orange.
const LEVELS = 128;

function labOfHue(L, chroma, hue) {
  const angle = hue * Math.PI / 180;
  return [L, chroma * Math.cos(angle), chroma * Math.sin(angle)];
}

// Converts OKLab to sRGB, 0 to 255.
function bytesOf([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((x) => Math.round(255 * Math.min(1, Math.max(0, x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055))));
}

// Returns LEVELS colours with equal distances along a path through OKLab.
function evenlyAlong(way) {
  const between = (x, y, part) => x.map((value, i) => value + part * (y[i] - value));
  const lengths = way.slice(1).map((point, i) => Math.hypot(...point.map((value, j) => value - way[i][j])));
  const whole = lengths.reduce((sum, length) => sum + length);
  return Array.from({length: LEVELS}, (_, level) => {
    let rest = whole * level / (LEVELS - 1), i = 0;
    while (i + 1 < lengths.length && rest > lengths[i]) rest -= lengths[i++];
    return bytesOf(between(way[i], way[i + 1], Math.min(1, rest / lengths[i])));
  });
}

const colours = {dark: false, changed: []};

// Theme from the switch in the header, or from the system.
function readTheme() {
  const theme = document.documentElement.dataset.theme;
  colours.dark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  const paper = colours.dark ? [0.225, -0.001, -0.007] : [0.985, 0, 0.003];
  const way = colours.dark
    ? [labOfHue(0.4, 0.09, 262), labOfHue(0.63, 0.13, 245), labOfHue(0.9, 0.07, 210)]
    : [labOfHue(0.84, 0.08, 230), labOfHue(0.6, 0.15, 252), labOfHue(0.33, 0.13, 268)];
  const end = (hue) => (colours.dark ? labOfHue(0.76, 0.13, hue) : labOfHue(0.52, 0.15, hue));
  colours.weight = evenlyAlong([paper, ...way]);
  colours.positive = evenlyAlong([paper, end(48)]);
  colours.negative = evenlyAlong([paper, end(255)]);
}
readTheme();

function themeChanged() {
  readTheme();
  for (const f of colours.changed) f();
}
new MutationObserver(themeChanged).observe(document.documentElement, {attributeFilter: ["data-theme"]});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);

// Colour of a weight from 0 to `largest`, or of a signed number. The square root makes small values visible.
function colourOf(value, largest, signed) {
  if (!Number.isFinite(value) || !(largest > 0)) return colours.weight[0];
  const part = Math.min(1, Math.abs(value) / largest);
  if (!signed) return colours.weight[Math.round((LEVELS - 1) * Math.sqrt(part))];
  return (value < 0 ? colours.negative : colours.positive)[Math.round((LEVELS - 1) * part)];
}
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
