// Makes the pictures interactive: computes their numbers with the compiled layer of the page (plain/pooling*.cpp,
// plain/attention.cpp or kernel_regression_plain.cpp as WebAssembly, see touch/), and moves the parts of the drawings
// (touch_pictures.py, touch_row.py, touch_bell.py).
(async () => {
  const code = Uint8Array.from(atob("@WASM@"), (letter) => letter.charCodeAt(0));
  const {exports: plain} = (await WebAssembly.instantiate(code)).instance;
  const array = (name) => new Float64Array(plain.memory.buffer, plain[name].value);
  const forward = ({logit, x}, window) => {
    array("logit_c").set(logit);
    array("x_ck").set(x);
    plain.forward(x.length, 1, window);
    plain.weights(x.length, 1, window);
    return ["out_ck", "weight_cc"].map(array);
  };
  const decimal = (value, digits = 2) =>
    value.toFixed(digits).replace(/^-(0[.0]*)$/, "$1").replace("-", "−").replace("Infinity", "∞");
  const make = (name) => document.createElement(name);
  const set = (part, values) => Object.entries(values).forEach((pair) => part.setAttribute(...pair));

  // `made` returns the function that draws. Its arguments: the picture's data; `put`, which changes a part, given by
  // class and number; and `control`, which makes a control over a movable part. A control is a range input, for the
  // keyboard and for screen readers. A pointer moves the part by its own distance. Nothing is animated.
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

  // Common parts of pictures in columns, with a slider in each column.
  const columns = (given, put, control) => {
    const {left, column, rows, most} = given;
    const at = (row, value) => rows[row][0] - rows[row][1] * value, middle = (c) => left + column * (c + 0.5);
    const upright = (name, c, row, start, end) =>
      put(name, c, {d: `M${middle(c)} ${at(row, start)}V${at(row, end)}`});
    // Makes a slider per column. Returns a function that moves a slider and sets the texts of its column.
    const sliders = (name, of, changed) => {
      const values = given[name];
      const moves = values.map((_, c) =>
        control(name + of + c, true, rows[name][1], -most, most, 0.1, (value) => changed(value, c)));
      return (c, words) => {
        const m = middle(c), y = at(name, values[c]), said = decimal(values[c], 1);
        upright("stem", c, name, 0, values[c]);
        put("knob", c, {cy: y});
        put(name, c, said);
        for (const word in words) put(word, c, words[word]);
        const told = Object.entries(words).map((pair) => pair.join(" ")).join(", ");
        moves[c](m - 22, y - 20, m + 22, y + 20, values[c], said + "; " + told);
      };
    };
    return {at, middle, upright, sliders};
  };

  picture("logit", (given, put, control) => {
    const {logit, x, left, column, rows} = given, count = x.length;
    const {at, middle, upright, sliders} = columns(given, put, control);
    const slide = sliders("logit", " of position ", (value, c) => ([logit[c], given.chosen] = [value, c]));
    return () => {
      const [out, weight] = forward(given, 0), d_logit = array("d_logit_c");
      array("d_out_ck").set(given.d_out);
      plain.backward(count, 1, 0);
      let steps = `M${left} ${at("out", out[0])}`, next = 0, total = 0;
      for (let c = 0; c < count; ++c) {
        upright("gap", c, "out", x[c], out[c]);
        upright("bar", c, "gradient", 0, d_logit[c]);
        for (let s = 0, sum = 0; s <= c; ++s) {
          const share = weight[c * count + s], fill = `var(--${s === given.chosen ? "forward" : "a"})`;
          put("share", next++, {y: at("share", (sum += share)), height: share * rows.share[1], fill});
        }
        steps += `V${at("out", out[c])}h${column}`;
        total += d_logit[c];
        slide(c, {out: decimal(out[c]), d_logit: decimal(d_logit[c])});
      }
      put("column", 0, {x: middle(given.chosen) - column / 2});
      put("steps", 0, {d: steps});
      put("total", 0, decimal(total));
    };
  });

  picture("row", (given, put, control) => {
    const {score, value, left, column} = given, count = score.length;
    const {at, upright, sliders} = columns(given, put, control);
    const slide = sliders("score", " of key ", (moved, s) => (score[s] = moved));
    return () => {
      array("score_s").set(score);
      array("value_s").set(value);
      array("d_out_row")[0] = given.d_out;
      plain.row(count);
      const [out] = array("out_row"), weight = array("weight_s"), d_score = array("d_score_s");
      let total = 0;
      for (let s = 0; s < count; ++s) {
        upright("share", s, "weight", 0, weight[s]);
        upright("gap", s, "out", value[s], out);
        upright("bar", s, "d_score", 0, d_score[s]);
        total += d_score[s];
        slide(s, {weight: decimal(weight[s]), d_score: decimal(d_score[s])});
      }
      put("mean", 0, {d: `M${left} ${at("out", out)}h${column * count}`});
      put("out", 0, decimal(out));
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
      plain.states(1, w, last);
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

  picture("bell", (given, put, control) => {
    const {x, y, left, column, plot, bell, dot} = given, count = x.length, questions = 60, end = 5;
    const across = (at) => left + column * at, above = (value) => plot[0] - plot[1] * value;
    const line = (points) => "M" + points.map((point) => point.map((value) => value.toFixed(2)).join(" ")).join("L");
    const grid = Array.from({length: questions + 1}, (_, i) => end * i / questions);
    const move = control("query", false, column, 0, end, 0.05, (value) => (given.query = value));
    const widen = control("deviation of the Gaussian", false, column, 0.05, 2, 0.05, (value) => (given.deviation = value));
    array("key_s").set(x);
    array("answer_s").set(y);
    return () => {
      const {query, deviation} = given, height = (at) => bell[0] - bell[1] * Math.exp(-0.5 * ((at - query) / deviation) ** 2);
      array("query_c").set([query, ...grid]);
      array("width")[0] = 1 / deviation;
      plain.regress(questions + 2, count);
      plain.learn(count);
      const [answer, ...answers] = array("answer_c"), counts = array("counts_s");
      const a = across(query), z = across(query + deviation), foot = bell[0], flank = height(query + deviation);
      for (let s = 0; s < count; ++s) put("point", s, {r: 2.5 + dot * counts[s] ** 0.5});
      put("curve", 0, {d: line(grid.map((at, i) => [across(at), above(answers[i])]))});
      put("bell", 0, {d: line(grid.map((at) => [across(at), height(at)]))});
      put("asked", 0, {d: line([[a, foot], [a, above(answer)]])});
      put("answer", 0, {cx: a, cy: above(answer)});
      put("knob", 0, {cx: a});
      put("knob", 1, {cx: z, cy: flank});
      const [loss] = array("loss"), [d_width] = array("d_width");
      [query, answer, 1 / deviation, loss, d_width].forEach((value, i) => put("word", i, decimal(value, i > 2 ? 3 : 2)));
      const text = `; out ${decimal(answer)}, loss ${decimal(loss, 3)}`;
      move(a - 20, foot - 18, a + 20, foot + 22, query, decimal(query) + text);
      widen(z - 16, flank - 22, z + 22, flank + 16, deviation, decimal(deviation) + text);
    };
  });

  document.head.append(Object.assign(make("style"), {textContent: `
    [data-touch] label { position: absolute; cursor: grab; border-radius: 14px; }
    [data-touch] label:has(:focus-visible) { outline: 2px solid var(--link); outline-offset: -6px; }
    [data-touch] input { width: 100%; height: 100%; margin: 0; opacity: 0; pointer-events: none; }`}));
})();
