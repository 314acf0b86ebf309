// Takes over the pictures that can be touched: finds their numbers by plain/pooling.cpp, which stands here as
// WebAssembly (touch/pooling.cpp), and moves the parts of the drawings that stand in the page (touch_pictures.py).
(async () => {
  const code = Uint8Array.from(atob("@WASM@"), (letter) => letter.charCodeAt(0));
  const {exports: pool} = (await WebAssembly.instantiate(code)).instance;
  const array = (name) => new Float64Array(pool.memory.buffer, pool[name].value);
  const forward = ({logit, x}, window) => {
    array("logit_c").set(logit);
    array("x_ck").set(x);
    pool.forward(x.length, 1, window);
    pool.weights(x.length, 1, window);
    return ["out_ck", "weight_cc"].map(array);
  };
  const decimal = (value, digits = 2) =>
    value.toFixed(digits).replace(/^-(0[.0]*)$/, "$1").replace("-", "−").replace("Infinity", "∞");
  const make = (name) => document.createElement(name);
  const set = (part, values) => Object.entries(values).forEach((pair) => part.setAttribute(...pair));

  // `made` returns what draws. It gets what the picture was told, a way to put something into a part, by its class and
  // number, and a way to make a control, which lies over what is dragged. A control is a real range, for the keyboard
  // and for those who listen; a pointer moves it by as much as itself. Nothing moves by itself.
  const picture = (kind, made) => {
    const place = document.querySelector(`[data-touch=${kind}]`);
    if (!place) return;
    const [frame, hint] = place.children, svg = frame.firstElementChild, {width, height} = svg.viewBox.baseVal;
    const put = (name, i, what) => {
      const part = svg.getElementsByClassName(name)[i];
      typeof what === "string" ? (part.textContent = what) : set(part, what);
    };
    const control = (name, upright, unit, min, max, step, changed) => {
      const label = make("label"), input = make("input");
      const pointed = (event) => (upright ? -event.y : event.x) * width / svg.clientWidth / unit;
      let away;
      set(input, {type: "range", min, max, step, "aria-label": name});
      label.style.touchAction = upright ? "none" : "pan-y";
      label.onpointerdown = (event) => {
        event.preventDefault();
        input.focus({preventScroll: true});
        label.setPointerCapture(event.pointerId);
        away = input.value - pointed(event);
      };
      label.onpointermove = (event) => {
        if (!label.hasPointerCapture(event.pointerId)) return;
        input.value = pointed(event) + away;
        input.oninput();
      };
      input.oninput = input.onfocus = () => (changed(+input.value), draw());
      label.append(input);
      frame.append(label);
      return (left, top, right, bottom, value, text) => {
        const sides = [top / height, 1 - right / width, 1 - bottom / height, left / width];
        label.style.inset = sides.map((side) => side * 100 + "%").join(" ");
        input.value = value;
        set(input, {"aria-valuetext": text});
      };
    };
    const draw = made(JSON.parse(place.dataset.given), put, control);
    draw();
    hint.hidden = false;
  };

  picture("logit", (given, put, control) => {
    const {logit, x, most, left, column, rows} = given, count = x.length;
    const at = (row, value) => rows[row][0] - rows[row][1] * value, middle = (c) => left + column * (c + 0.5);
    const changed = (c) => (value) => ([logit[c], given.chosen] = [value, c]);
    const controls = x.map((_, c) =>
      control("logit of position " + c, true, rows.logit[1], -most, most, 0.1, changed(c)));
    return () => {
      const [out, weight] = forward(given, 0), d_logit = array("d_logit_c");
      array("d_out_ck").set(given.d_out);
      pool.backward(count, 1, 0);
      let steps = `M${left} ${at("out", out[0])}`, next = 0, total = 0;
      for (let c = 0; c < count; ++c) {
        const m = middle(c), y = at("logit", logit[c]), o = at("out", out[c]), d = d_logit[c];
        const says = {logit: decimal(logit[c], 1), out: decimal(out[c]), d_logit: decimal(d)};
        for (const name in says) put(name, c, says[name]);
        const upright = (name, start, end) => put(name, c, {d: `M${m} ${start}V${end}`});
        upright("stem", at("logit", 0), y);
        upright("gap", at("out", x[c]), o);
        upright("bar", at("gradient", 0), at("gradient", d));
        put("knob", c, {cy: y});
        for (let s = 0, sum = 0; s <= c; ++s) {
          const share = weight[c * count + s], fill = `var(--${s === given.chosen ? "forward" : "a"})`;
          put("share", next++, {y: at("share", (sum += share)), height: share * rows.share[1], fill});
        }
        steps += `V${o}h${column}`;
        total += d;
        const text = `${says.logit}; out ${says.out}, d_logit ${says.d_logit}`;
        controls[c](m - 22, y - 20, m + 22, y + 20, logit[c], text);
      }
      put("column", 0, {x: middle(given.chosen) - column / 2});
      put("steps", 0, {d: steps});
      put("total", 0, decimal(total));
    };
  });

  picture("window", (given, put, control) => {
    const {x, left, column, row, cells, rail} = given, count = x.length, edge = (c) => left + column * c;
    const end = (name, changed) => control(name + " position of the window", false, column, 0, count - 1, 1, changed);
    const move = end("last", (value) => (given.last = Math.max(value, given.window - 1)));
    const resize = end("first", (value) => (given.window = Math.max(given.last - value, 0) + 1));
    return () => {
      const {window: w, last} = given, first = last - w + 1, block = last - (last % w);
      const [out, weight] = forward(given, w), states = array("states_of"), a = edge(first), z = edge(last + 1);
      pool.states(1, w, last);
      let gamma = 0;
      for (let c = 0; c < count; ++c) {
        const inside = c >= first && c <= last, share = weight[last * count + c];
        if (c < block) gamma += share;
        put("cell", c, {fill: `var(--${!inside ? "paper" : c < block ? "b" : "a"})`});
        put("dot", c, {r: inside ? given.dot * share ** 0.5 : 2.5, fill: `var(--${inside ? "forward" : "paper"})`});
      }
      [[first, block - 1], [block, last], [first, last]].forEach(([begin, end], i) => {
        put("range", i, begin > end ? "none" : begin + "–" + end);
        put("level", i, {x: edge(begin), y: row[0] - row[1] * states[3 * i + 2], width: edge(end + 1) - edge(begin)});
      });
      for (let i = 0; i < 9; ++i) put("number", i, decimal(states[i], i % 3 && 2));
      put("blocks", 0, {"stroke-dasharray": column * w - 4 + " 4"});
      put("frame", 0, {x: a, width: z - a});
      put("rail", 0, {d: `M${a} ${rail}H${z}m0 -5v10`});
      put("knob", 0, {cx: a});
      put("size", 0, "w = " + w);
      put("gamma", 0, decimal(gamma));
      put("part", 0, {width: gamma * column * count});
      const text = `, w = ${w}, out ${decimal(out[last])}`;
      move(a - 8, cells[0] - 8, z + 8, cells[0] + cells[1] + 8, last, last + text);
      resize(a - 22, rail - 20, a + 22, rail + 20, first, first + text);
    };
  });

  document.head.append(Object.assign(make("style"), {textContent: `
    [data-touch] label { position: absolute; cursor: grab; border-radius: 14px; }
    [data-touch] label:has(:focus-visible) { outline: 2px solid var(--link); outline-offset: -6px; }
    [data-touch] input { width: 100%; height: 100%; margin: 0; opacity: 0; pointer-events: none; }`}));
})();
