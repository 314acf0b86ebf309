// A small picture of an array: one pixel per number, enlarged by the style sheet.

function largestOf(values) {
  let largest = 0;
  for (const value of values) if (Math.abs(value) > largest && Number.isFinite(value)) largest = Math.abs(value);
  return largest;
}

// Draws (rows, columns) numbers into a canvas. signed: true for numbers with a sign. largest: end of the colour scale, by
// default the largest magnitude of the numbers.
function paint(canvas, values, rows, columns, {signed = true, largest = largestOf(values)} = {}) {
  canvas.width = columns;
  canvas.height = rows;
  const pen = canvas.getContext("2d"), picture = pen.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; ++i) {
    const [r, g, b] = colourOf(values[i], largest, signed);
    picture.data.set([r, g, b, 255], 4 * i);
  }
  pen.putImageData(picture, 0, 0);
}

// Returns the rows and columns of an array's picture: the last extent is the number of columns.
function folded(extents) {
  const real = extents.filter((extent, i) => i > 0 || extent !== 1 || extents.length === 1);
  const columns = real.at(-1) ?? 1;
  return [real.slice(0, -1).reduce((product, extent) => product * extent, 1), columns];
}

// Makes the cells of a picture selectable with a pointer or the arrow keys. chosen(row, column): called for each selection.
function choosable(canvas, label, size, chosen) {
  let [row, column] = [0, 0];
  Object.assign(canvas, {tabIndex: 0});
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", label);
  const go = (r, c) => {
    const [rows, columns] = size();
    row = Math.min(rows - 1, Math.max(0, r));
    column = Math.min(columns - 1, Math.max(0, c));
    chosen(row, column);
  };
  const pointed = (event) => {
    const box = canvas.getBoundingClientRect(), [rows, columns] = size();
    go(Math.floor((event.clientY - box.top) / box.height * rows), Math.floor((event.clientX - box.left) / box.width * columns));
  };
  canvas.onpointerdown = pointed;
  canvas.onpointermove = (event) => event.buttons && pointed(event);
  canvas.onkeydown = (event) => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!step) return;
    event.preventDefault();
    go(row + step[0], column + step[1]);
  };
  return go;
}
