// Controls of the map: pointer, wheel, keys, search, coloring, and the selected image.

function hover(image, x, y) {
  const tooltip = byId("tooltip");
  if (image !== map.state.hovered) {
    map.state.hovered = image;
    map.canvas.classList.toggle("over", image >= 0);
    map.refresh();
    tooltip.replaceChildren();
    if (image >= 0) tooltip.append(picture(image, 132), element("div", {}, named(className(image))), facts(image));
  }
  tooltip.hidden = image < 0;
  if (image < 0) return;
  const { width, height } = map.size(), box = tooltip.getBoundingClientRect();
  tooltip.style.left = Math.max(0, Math.min(x + 16, width - box.width)) + "px";
  tooltip.style.top = Math.max(0, y + 16 + box.height > height ? y - 16 - box.height : y + 16) + "px";
}

// The name of the image, a link to its file where there is one.
function file(image) {
  const address = original(image), name = { class: "name clamped", title: imageName(image) };
  return address ? element("a", { ...name, href: address, target: "_blank", rel: "noopener" }, imageName(image)) : element("span", name, imageName(image));
}

function facts(image) {
  const said = ["nearest neighbor of its class", "nearest neighbor of another class", "no other image of its class"];
  return element("div", { class: "muted facts" }, file(image),
    clusterOf.length > 0 && element("div", {}, `cluster ${clusterOf[image] + 1}`),
    labeled && verdictMark(verdictOf[image], said[verdictOf[image]]));
}

// Select an image: its neighbors on the map and in the panel. -1 clears the selection.
function choose(image, { reveal = true } = {}) {
  map.state.chosen = image;
  const panel = byId("selection");
  if (image < 0) {
    panel.replaceChildren(element("p", { class: "muted" }, "Select an image on the map, in the list or anywhere below to see its nearest neighbors."));
    map.refresh();
    return;
  }
  if (reveal) map.reveal(image);
  const found = neighborsOf(image);
  const right = found.filter((neighbor) => neighbor.right).length;
  panel.replaceChildren(
    element("div", { class: "chosen" }, large(image),
      element("div", {}, element("h3", {}, named(className(image))), facts(image))),
    element("h3", {}, found.length ? `Nearest neighbors${labeled ? `: ${right} of ${found.length} of its class` : ""}` : "No other images"),
    element("ol", { class: "tiles" }, found.map((neighbor) => element("li", {}, tile(neighbor.image, neighbor)))),
    element("div", { class: "toolbar" },
      labeled && element("button", { type: "button", onclick: () => highlightClass(classOf[image]) }, "Show its class"),
      element("button", { type: "button", onclick: () => { choose(-1); map.canvas.focus(); } }, "Clear selection")),
  );
  byId("announcer").textContent = `Selected: ${className(image)}.${labeled ? ` ${right} of ${found.length} nearest neighbors are of its class.` : ""}`;
  map.refresh();
  const isBelow = panel.getBoundingClientRect().top >= map.canvas.getBoundingClientRect().bottom; // on a phone
  if (isBelow) panel.scrollIntoView({ block: reveal && !onScreen(panel) ? "end" : "nearest" });
  else if (reveal && !onScreen(map.canvas)) map.canvas.scrollIntoView({ block: "center" });
}

function onScreen(node) {
  const box = node.getBoundingClientRect();
  return box.bottom > 80 && box.top < window.innerHeight - 80;
}

function highlightClass(code) {
  map.state.highlighted = new Set(membersOfClass[code]);
  map.fit(membersOfClass[code]);
  const field = byId("search");
  field.value = about.class_names[code];
  showMatches(code);
  if (!onScreen(map.canvas)) map.canvas.scrollIntoView({ block: "center" });
  byId("announcer").textContent = `${counted(membersOfClass[code].length, "image")} of class ${about.class_names[code]}`;
}

function clearHighlight() {
  if (map.state.highlighted === null) return;
  map.state.highlighted = null;
  map.refresh();
}

const N_MATCHES = 40;
function matchingClasses(text) {
  const wanted = text.trim().toLocaleLowerCase();
  const found = [];
  if (wanted) about.class_names.forEach((name, code) => { if (name.toLocaleLowerCase().includes(wanted)) found.push(code); });
  const starts = (code) => !about.class_names[code].toLocaleLowerCase().startsWith(wanted);
  return found.sort((a, b) => starts(a) - starts(b) || a - b);
}

function showMatches(highlighted = -1) {
  const text = byId("search").value, results = byId("search-results");
  const found = highlighted >= 0 ? [highlighted] : matchingClasses(text);
  results.replaceChildren(...found.slice(0, N_MATCHES).map((code) => element("button", {
    type: "button", "aria-pressed": String(code === highlighted), "data-class": code, onclick: () => highlightClass(code),
  }, named(about.class_names[code]), element("span", { class: "muted" }, counted(membersOfClass[code].length, "image")))));
  if (found.length > N_MATCHES) results.append(element("p", { class: "muted" }, `and ${number(found.length - N_MATCHES)} more: keep typing`));
  if (text.trim() && !found.length) results.append(element("p", { class: "muted" }, "No matching class."));
  if (highlighted >= 0) results.append(element("button", { type: "button", onclick: () => { stopSearch(); byId("search").focus(); } }, "Show all classes again"));
}

function stopSearch() {
  byId("search").value = "";
  showMatches();
  clearHighlight();
}

function showLegend() {
  const legend = byId("legend"), by = map.state.coloring;
  const entry = (color, ...words) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = color;
    return element("span", {}, swatch, ...words);
  };
  if (by === "verdict") {
    const counts = [0, 0, 0];
    for (const verdict of verdictOf) counts[verdict]++;
    const said = ["nearest neighbor of the same class", "of another class", "alone in its class"];
    legend.replaceChildren(...said.map((words, v) => entry(cssColor("--" + VERDICTS[v]), `${MARKS[v]} ${words}: ${number(counts[v])}`)));
    return;
  }
  const count = by === "cluster" ? medoids.length : about.class_names.length;
  if (by === "class" && count <= 20) legend.replaceChildren(...about.class_names.map((name, code) => entry(colorOf(code), named(name))));
  else legend.replaceChildren(`${counted(count, by, by === "class" ? "classes" : "clusters")}${count > N_COLORS ? `; ${N_COLORS} colors, so some repeat` : ""}`);
}

function startControls() {
  const { canvas } = map, pointers = new Map();
  let traveled = 0, scrolledAt = -1e9;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) traveled = 0;
    map.state.keyboard = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event), before = pointers.get(event.pointerId);
    if (!before) { if (event.pointerType === "mouse") hover(map.imageAt(x, y), x, y); return; }
    const other = [...pointers].find(([id]) => id !== event.pointerId);
    traveled += Math.hypot(x - before[0], y - before[1]);
    if (other) {
      const apart = (point) => Math.max(1, Math.hypot(point[0] - other[1][0], point[1] - other[1][1]));
      map.pan((x - before[0]) / 2, (y - before[1]) / 2);
      map.zoom(apart([x, y]) / apart(before), (x + other[1][0]) / 2, (y + other[1][1]) / 2);
    } else if (traveled > 4) { map.pan(x - before[0], y - before[1]); canvas.classList.add("dragging"); hover(-1); }
    pointers.set(event.pointerId, [x, y]);
  });
  const lift = (event) => {
    const [x, y] = place(event), alone = pointers.size === 1;
    const tapped = pointers.delete(event.pointerId) && alone && traveled <= 4 && event.type === "pointerup";
    if (!pointers.size) canvas.classList.remove("dragging");
    if (tapped) choose(map.imageAt(x, y, event.pointerType === "mouse" ? 14 : 24), { reveal: false });
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => hover(-1));
  // A wheel that is scrolling the page past the map keeps scrolling; one that starts over the map zooms it.
  window.addEventListener("scroll", () => { scrolledAt = performance.now(); }, { passive: true });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && performance.now() - scrolledAt < 300) return;
    const lines = event.deltaMode === 1 ? 30 : 1;
    const changed = map.zoom(Math.exp(-Math.max(-120, Math.min(120, event.deltaY * lines)) * 0.0025), ...place(event));
    if (changed || event.ctrlKey) event.preventDefault();
  }, { passive: false });
  canvas.addEventListener("focus", () => { map.state.keyboard = canvas.matches(":focus-visible"); map.refresh(); });
  canvas.addEventListener("blur", () => { map.state.keyboard = false; map.refresh(); });
  canvas.addEventListener("keydown", onMapKey);

  byId("zoom-in").addEventListener("click", () => map.zoom(1.6));
  byId("zoom-out").addEventListener("click", () => map.zoom(1 / 1.6));
  byId("zoom-fit").addEventListener("click", () => { map.fit(); clearHighlight(); });
  byId("show-images").addEventListener("change", (event) => { map.state.images = event.target.checked; map.refresh(); });
  if (!about.thumbnails.n_sheets) { byId("show-images").checked = false; byId("show-images").disabled = true; }
  byId("search").addEventListener("input", () => { clearHighlight(); showMatches(); });
  byId("search").addEventListener("keydown", (event) => {
    const [first] = matchingClasses(event.target.value);
    if (event.key === "Enter" && first !== undefined) highlightClass(first);
    if (event.key === "Escape") stopSearch();
  });
  const ways = [["class", "class", true], ["cluster", "cluster", clusterOf.length > 0], ["verdict", "right or wrong", k > 0 && labeled]];
  for (const [value, words, possible] of ways) {
    byId("coloring").append(element("label", { title: possible ? undefined : "not in this run" }, element("input", {
      type: "radio", name: "coloring", value, checked: value === "class", disabled: !possible,
      onchange: () => { map.state.coloring = value; map.recolor(); showLegend(); },
    }), words));
  }
}

function onMapKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = event.shiftKey ? 200 : 60, { width, height } = map.size();
  const actions = {
    ArrowLeft: () => map.pan(step, 0), ArrowRight: () => map.pan(-step, 0), ArrowUp: () => map.pan(0, step), ArrowDown: () => map.pan(0, -step),
    "+": () => map.zoom(1.4), "=": () => map.zoom(1.4), "-": () => map.zoom(1 / 1.4), "−": () => map.zoom(1 / 1.4), 0: () => map.fit(),
    Enter: () => choose(map.imageAt(width / 2, height / 2, Infinity), { reveal: false }),
    Escape: () => { choose(-1); stopSearch(); },
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  map.state.keyboard = true;
  actions[event.key]();
  map.refresh();
}
