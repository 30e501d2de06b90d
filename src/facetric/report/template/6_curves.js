// Curves as small multiples in SVG; hover or arrow keys read the values.

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(1);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(3);
}

const plain = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? Number(value.toPrecision(3)).toExponential() : String(Number(value.toPrecision(6))));

// Round marks that enclose the values: at most five.
function marks(low, high) {
  if (!(high > low)) { const pad = Math.abs(low) * 0.05 || 1; low -= pad; high += pad; }
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let i = Math.floor(low / step + 1e-9); (i - 1) * step < high - 1e-9 * step; i++) found.push(i * step);
  return found;
}

const CURVE_COLORS = [0, 3, 1, 4, 2, 5, 6, 7];
function curve({ title, series }) {
  const W = 320, H = 180, left = 44, right = 312, top = 10, bottom = 158;
  const steps = series.flatMap((line) => line.steps), values = series.flatMap((line) => line.values).filter(Number.isFinite);
  const rows = marks(Math.min(...extent(values)), Math.max(...extent(values)));
  const [low, high] = [rows[0], rows[rows.length - 1]], [first, last] = extent(steps);
  const x = (step) => left + (last > first ? (step - first) / (last - first) : 0.5) * (right - left);
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
  const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: ${series.map(summary).join("; ")}` });
  for (const row of rows) {
    drawing.append(svg("line", { class: "axis", x1: left, x2: right, y1: y(row), y2: y(row) }));
    drawing.append(svg("text", { x: left - 5, y: y(row) + 4, "text-anchor": "end" }, plain(row)));
  }
  drawing.append(svg("text", { x: left, y: H - 6 }, `step ${number(first)}`), svg("text", { x: right, y: H - 6, "text-anchor": "end" }, number(last)));
  series.forEach((line, at) => {
    const style = { fill: "none", stroke: colorOf(CURVE_COLORS[at % 8]), "stroke-width": 1.8, "stroke-linejoin": "round" };
    let path = "", open = false;
    line.values.forEach((value, i) => {
      if (!Number.isFinite(value)) { open = false; return; }
      path += `${open ? "L" : "M"}${x(line.steps[i]).toFixed(1)} ${y(value).toFixed(1)}`;
      open = true;
    });
    drawing.append(svg("path", { d: path, ...style }));
    if (line.values.length < 40) line.values.forEach((value, i) => Number.isFinite(value) && drawing.append(svg("circle", { cx: x(line.steps[i]), cy: y(value), r: 2.4, fill: style.stroke })));
  });
  const cursor = svg("line", { class: "axis", y1: top, y2: bottom, visibility: "hidden" });
  drawing.append(cursor);
  const keys = element("figcaption", { class: "keys" });
  const read = (step) => {
    cursor.setAttribute("visibility", step === null ? "hidden" : "visible");
    if (step !== null) for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(step));
    keys.replaceChildren(...series.map((line, at) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = colorOf(CURVE_COLORS[at % 8]);
      return element("span", {}, swatch, `${line.name} ${short(line.values[step === null ? line.values.length - 1 : nearestStep(line.steps, step)])}`);
    }), step === null ? "" : element("span", {}, `at step ${number(Math.round(step))}`));
  };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * W;
    const step = first + (Math.min(Math.max(at, left), right) - left) / (right - left) * (last - first);
    read(series[0].steps[nearestStep(series[0].steps, step)]);
  });
  drawing.addEventListener("pointerleave", () => read(null));
  read(null);
  return element("figure", { class: "curve" }, element("h3", {}, title), drawing, keys);
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return low <= high ? [low, high] : [0, 1];
}

const summary = (line) => `${line.name} from ${short(line.values[0])} to ${short(line.values[line.values.length - 1])} over ${counted(line.steps.length, "point")}`;

function nearestStep(steps, wanted) {
  let best = 0;
  steps.forEach((step, i) => { if (Math.abs(step - wanted) < Math.abs(steps[best] - wanted)) best = i; });
  return best;
}

function showCurves() {
  byId("curves-grid").replaceChildren(...about.curves.map(curve));
}
