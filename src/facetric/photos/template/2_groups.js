// The groups on the page. Sections that did not change are kept, so that a decision among 20,000 photos shows at once.

const AMBIGUOUS = 0.95;
const thumbnail = (photo) => `${about.thumbnails}/${about.contents[photo]}.jpg`;
const original = (photo) => (about.live ? `photos/${about.contents[photo]}` : addressOf(about.start, about.paths[photo][0]));
const nameIn = (photo) => (about.thumbnails ? about.paths[photo][0].split("/").pop() : about.paths[photo][0]);
const pictureOf = (photo, options = {}) => (about.thumbnails
  ? element("img", { src: thumbnail(photo), alt: "", ...options }) : element("span", { class: "text" }, nameIn(photo)));
const say = (text) => { byId("status").textContent = text; };

let now = currentGroups();
let merging = null; // the number of the group that is to be merged
let naming = null; // the number of a group of one photo that is getting a name
let current = null; // the selected photo
const found = new Map(); // group → how many photos it was made of
for (const group of about.clusters) found.set(group, (found.get(group) || 0) + 1);
const sections = new Map(); // group → { signature, section }

function medoidOf(group) {
  const photos = now.groups.get(group);
  const medoid = about.medoids[group];
  return medoid !== undefined && now.of[medoid] === group ? medoid
    : photos.reduce((best, photo) => (about.ambiguity[photo] < about.ambiguity[best] ? photo : best));
}

const isConfirmed = (photo, medoid) =>
  photo !== medoid && now.union.root(about.contents[photo]) === now.union.root(about.contents[medoid]);

function tile(photo, { medoid = -1, ambiguous = true } = {}) {
  const copy = about.copies[photo];
  const confirmed = medoid >= 0 && isConfirmed(photo, medoid);
  const marks = [
    confirmed ? element("span", { title: "confirmed" }, "✓")
      : ambiguous && about.ambiguity[photo] >= AMBIGUOUS && photo !== medoid ? element("span", { title: "ambiguous" }, "?") : "",
    copy !== photo ? element("span", { title: `copy of ${nameIn(copy)}` }, "≈") : "",
    about.paths[photo].length > 1 ? element("span", { title: about.paths[photo].join("\n") }, `×${about.paths[photo].length}`) : "",
  ];
  const said = [nameIn(photo), photo === medoid && "medoid", confirmed && "confirmed", copy !== photo && `copy of ${nameIn(copy)}`];
  return element("button", {
    type: "button", class: photo === medoid ? "tile medoid" : "tile", "data-photo": photo, title: about.paths[photo].join("\n"),
    "aria-label": said.filter(Boolean).join(", "),
  }, pictureOf(photo, { loading: "lazy", decoding: "async" }), element("span", { class: "marks" }, marks));
}

function ordered(group) { // the medoid, then by ambiguity; what is confirmed comes last
  const medoid = medoidOf(group);
  const rank = (photo) => (photo === medoid ? -1 : isConfirmed(photo, medoid) ? 1 : 0);
  return [...now.groups.get(group)].sort((a, b) => rank(a) - rank(b) || about.ambiguity[b] - about.ambiguity[a] || a - b);
}

// How sure a group is of one kind; nothing once its photos are others than those that were judged.
function surenessOf(group, photos) {
  const precision = about.precision[group];
  if (!precision || photos.some((photo) => about.clusters[photo] !== group) || photos.length !== found.get(group)) return "";
  const percent = `${Math.round(100 * precision)}%`;
  return element("span", { class: "sureness", title: `of two photos of this group both are expected to be of one kind in ${percent} of cases` },
    element("meter", { min: 0, max: 1, low: 0.4, high: 0.6, optimum: 1, value: precision, "aria-hidden": "true" }), `${about.sureness[group]} (${percent})`);
}

const titleOf = (group) => now.names.get(group) || `Group ${number(group + 1)}`;

function sectionOf(group) {
  const photos = ordered(group);
  const medoid = medoidOf(group);
  const isMerging = merging === null ? "" : merging === group ? "from" : "to";
  const signature = [photos.join(), photos.map((photo) => +isConfirmed(photo, medoid)).join(""), now.names.get(group), isMerging].join("|");
  const kept = sections.get(group);
  if (kept && kept.signature === signature) return kept.section;
  const merge = { "": "Merge", from: "Cancel", to: "Merge here" }[isMerging];
  const section = element("section", { class: "group", "data-group": group, "aria-label": `${titleOf(group)}, ${counted(photos.length, about.noun)}` },
    element("header", {},
      element("input", { type: "text", class: "name", value: now.names.get(group) || "", placeholder: titleOf(group), "aria-label": `Name of group ${group + 1}`, autocomplete: "off", spellcheck: "false" }),
      element("span", { class: "size" }, counted(photos.length, about.noun)),
      surenessOf(group, photos),
      element("button", { type: "button", class: "confirm" }, "Confirm all"),
      element("button", { type: "button", class: `merge ${isMerging}` }, merge)),
    element("div", { class: "tiles" }, photos.map((photo) => tile(photo, { medoid }))));
  sections.set(group, { signature, section });
  return section;
}

function fill(id, photos) {
  const section = byId(id);
  section.hidden = !photos.length;
  section.querySelector(".size").textContent = number(photos.length);
  const tiles = section.querySelector(".tiles");
  const key = photos.join();
  if (tiles.dataset.photos === key) return;
  tiles.dataset.photos = key;
  tiles.replaceChildren(...photos.map((photo) => tile(photo, { ambiguous: id === "alone" })));
}

function matches(group, wanted) {
  return titleOf(group).toLowerCase().includes(wanted)
    || now.groups.get(group).some((photo) => about.paths[photo].some((path) => path.toLowerCase().includes(wanted)));
}

function show() {
  now = currentGroups();
  const numbers = [...now.groups.keys()].sort((a, b) => a - b);
  const wanted = byId("filter").value.trim().toLowerCase();
  const shown = wanted ? numbers.filter((group) => matches(group, wanted)) : numbers;
  const isGroup = (group) => now.groups.get(group).length > 1 || now.names.has(group) || group === naming;
  const made = shown.filter(isGroup).map(sectionOf);
  const holder = byId("groups");
  const old = [...holder.children];
  for (const section of old) if (!made.includes(section)) section.remove();
  made.forEach((section, i) => { if (holder.children[i] !== section) holder.insertBefore(section, holder.children[i] || null); });
  const alone = shown.filter((group) => !isGroup(group)).map((group) => now.groups.get(group)[0]);
  fill("alone", alone.sort((a, b) => about.ambiguity[b] - about.ambiguity[a] || a - b));
  fill("rejected", [...now.rejected].sort((a, b) => a - b));
  byId("count").textContent = number(decisions.length);
  byId("undo").disabled = !decisions.some((decision) => decision.step);
  select(current);
}

const tileOf = (photo) => document.querySelector(`main [data-photo="${photo}"]`);

function select(photo, { focus = false } = {}) {
  document.querySelector(".tile.current")?.classList.remove("current");
  const found = photo === null ? null : tileOf(photo);
  current = found ? photo : null;
  byId("bar").hidden = !found;
  if (!found) return;
  found.classList.add("current");
  if (focus) { found.focus({ preventScroll: true }); found.scrollIntoView({ block: "nearest" }); }
  const link = byId("original");
  link.textContent = about.paths[photo][0];
  if (about.thumbnails) link.href = original(photo); // a name leads nowhere
  const copy = about.copies[photo] !== photo ? ` · copy of ${nameIn(about.copies[photo])}` : "";
  byId("about-photo").textContent = now.rejected.has(photo) ? "rejected" : `${titleOf(now.of[photo])} · ambiguity ${about.ambiguity[photo].toFixed(2)}${copy}`;
}
