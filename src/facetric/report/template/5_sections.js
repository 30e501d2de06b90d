// The sections around the map: scores, failed queries, clusters, the list, and the configuration.

function showScores() {
  const { cards, columns, rows, notes } = about.scores;
  byId("headline").append(element("div", { class: "cards" }, cards.map((card) =>
    element("div", { class: "card" }, element("b", {}, card.value), element("h3", {}, card.name), element("p", { class: "muted" }, card.meaning)))));
  if (!cards.length && !rows.length) byId("headline").append(element("p", { class: "muted" }, "This run has not been evaluated: evaluation.json is missing."));
  if (rows.length) {
    const best = columns.map((_, c) => Math.max(...rows.map((row) => Number.parseFloat(row.values[c])).filter(Number.isFinite)));
    const cell = (value, c) => element("td", { class: `number${rows.length > 1 && Number.parseFloat(value) === best[c] ? " best" : ""}` }, value);
    byId("score-table").append(element("table", {},
      element("caption", { class: "unseen" }, "Scores of this run, of its start and published ones"),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, ""), columns.map((column, c) => element("th", { scope: "col", class: "number", title: about.scores.meanings[c] }, column)))),
      element("tbody", {}, rows.map((row) => element("tr", { class: row.ours ? "ours" : "" }, element("th", { scope: "row" }, named(row.name)), row.values.map(cell))))));
  }
  byId("score-notes").textContent = notes;
}

function showFailures() {
  const asked = n - verdictOf.filter((verdict) => verdict === ALONE).length;
  const wrong = verdictOf.filter((verdict) => verdict === WRONG).length;
  byId("failures-about").textContent = `${number(wrong)} of ${number(asked)} queries (${percent(wrong, asked)}) have a nearest neighbor of another class. `
    + (wrong ? `The ${number(failures.length)} worst first: those with the fewest neighbors of their class. Numbers are distances.` : "");
  const list = element("div", {});
  byId("failures-list").append(list, inPages(list, failures.length, (at) => {
    const image = failures[at];
    return element("div", { class: "failure" }, tile(image, { size: 100 }),
      element("ol", { class: "tiles" }, neighborsOf(image).map((neighbor) => element("li", {}, tile(neighbor.image, neighbor)))));
  }, { first: 12, page: 12 }));
}

function clusterStory(cluster, members) {
  const counts = new Map();
  for (const image of members) counts.set(classOf[image], (counts.get(classOf[image]) || 0) + 1);
  const parts = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  return { cluster, members, parts, purity: members.length ? parts[0][1] / members.length : 0 };
}

const CLUSTER_ORDERS = {
  "largest first": (a, b) => b.members.length - a.members.length,
  "most mixed first": (a, b) => a.purity - b.purity || b.members.length - a.members.length,
  "purest first": (a, b) => b.purity - a.purity || b.members.length - a.members.length,
};

function showClusters() {
  const membersOf = Array.from(medoids, () => []);
  clusterOf.forEach((cluster, image) => membersOf[cluster].push(image));
  const stories = membersOf.map((members, cluster) => clusterStory(cluster, members)).filter((story) => story.members.length);
  byId("clusters-about").textContent = `${counted(stories.length, "cluster")}: k-means from medoids. First the medoid, the member with the least total `
    + `distance to the others${labeled ? "; then the members of other classes, and the rest. The bar shows the classes inside." : "."}`;
  const list = element("div", {}), foot = element("div", { class: "toolbar" });
  const fill = (name) => {
    stories.sort((a, b) => CLUSTER_ORDERS[name](a, b) || a.cluster - b.cluster);
    foot.replaceChildren(inPages(list, stories.length, (at) => clusterSection(stories[at]), { first: 12, page: 12 }));
  };
  const orders = Object.keys(CLUSTER_ORDERS).slice(0, labeled ? undefined : 1);
  const select = element("select", { id: "cluster-order", onchange: (event) => fill(event.target.value) }, orders.map((name) => element("option", {}, name)));
  byId("clusters-order").append(element("label", { for: "cluster-order" }, "Order"), select);
  byId("clusters-list").append(list, foot);
  fill("largest first");
}

const FIRST_MEMBERS = 24;
function clusterSection({ cluster, members, parts, purity }) {
  const medoid = medoids[cluster], [main] = parts[0];
  const others = members.filter((image) => image !== medoid);
  const isOdd = (image) => classOf[image] !== main;
  const ordered = [medoid, ...others.filter(isOdd), ...others.filter((image) => !isOdd(image))];
  const bar = element("div", { class: "bar", "aria-hidden": "true" }, parts.slice(0, 12).map(([code, count]) => {
    const part = element("i", { title: about.class_names[code] });
    part.style.width = 100 * count / members.length + "%";
    part.style.background = colorOf(code);
    return part;
  }));
  const size = counted(members.length, "image");
  const told = labeled ? `cluster ${cluster + 1}: ${size} of ${counted(parts.length, "class", "classes")}, ${percent(purity, 1)} of this one` : size;
  const tiles = element("ol", { class: "tiles" });
  const made = (at) => element("li", {}, tile(ordered[at], isOdd(ordered[at]) ? { right: false, size: 112 } : { caption: "", size: 112 }));
  const first = ordered.length > 1.5 * FIRST_MEMBERS ? FIRST_MEMBERS : ordered.length;
  const more = inPages(tiles, ordered.length, made, { first, page: ordered.length });
  return element("section", { class: "cluster", "aria-label": `Cluster ${cluster + 1}` },
    element("h3", {}, labeled ? named(about.class_names[main]) : `Cluster ${cluster + 1}`), element("p", { class: "muted" }, told), labeled && bar, tiles, more);
}

const PAGE = 25;
function showList() {
  const select = byId("list-class"), only = byId("list-wrong"), table = byId("list-table"), pages = byId("list-pages");
  const byName = about.class_names.map((name, code) => [name, code]).filter(([, code]) => membersOfClass[code].length);
  select.append(element("option", { value: "" }, `all ${number(byName.length)} classes`), ...byName.map(([name, code]) => element("option", { value: code }, name)));
  for (const control of [select, only]) control.closest("label").hidden = !labeled;
  let page = 0;
  const fill = () => {
    const candidates = select.value === "" ? Array.from({ length: n }, (_, i) => i) : membersOfClass[Number(select.value)];
    const images = only.checked ? candidates.filter((image) => verdictOf[image] === WRONG) : candidates;
    const last = Math.max(0, Math.ceil(images.length / PAGE) - 1);
    page = Math.min(page, last);
    const heads = ["", "class", "image", ...(clusterOf.length ? ["cluster"] : []), "nearest neighbor", ""];
    table.replaceChildren(
      element("caption", { class: "unseen" }, "Images with their class and the class of their nearest neighbor"),
      element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, images.slice(page * PAGE, (page + 1) * PAGE).map(listRow)));
    const step = (words, by) => element("button", { type: "button", disabled: page + by < 0 || page + by > last, onclick: () => { page += by; fill(); } }, words);
    pages.replaceChildren(step("Previous", -1), `${images.length ? `${number(page * PAGE + 1)}–${number(Math.min(images.length, (page + 1) * PAGE))}` : "0"} of ${number(images.length)}`, step("Next", 1));
  };
  for (const control of [select, only]) control.addEventListener("change", () => { page = 0; fill(); });
  fill();
}

function listRow(image) {
  const nearest = k ? neighbors[image * k] : -1;
  return element("tr", {}, element("td", {}, picture(image, 38)), element("td", {}, named(className(image))), element("td", {}, file(image)),
    clusterOf.length ? element("td", {}, String(clusterOf[image] + 1)) : null,
    element("td", {}, nearest < 0 ? "–" : [labeled && verdictMark(verdictOf[image] === ALONE ? WRONG : verdictOf[image], ""), named(className(nearest))]),
    element("td", {}, element("button", { type: "button", "aria-label": `Neighbors of image ${image + 1}, ${className(image)}`, onclick: () => { choose(image); byId("selection").querySelector("button")?.focus(); } }, "Neighbors")));
}

function showOrigin() {
  const body = byId("origin-body");
  if (about.notes.length) body.append(element("div", { class: "notes" }, element("ul", {}, about.notes.map((note) => element("li", {}, note)))));
  for (const { title, text } of about.texts) body.append(element("h3", {}, title), element("pre", { tabindex: "0", "aria-label": title }, text));
}
