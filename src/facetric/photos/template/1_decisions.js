// What was decided, and the groups that follow from it. A photo is its place in about.contents; a decision names contents.

const n = about.contents.length;
const placeOf = new Map(about.contents.map((content, i) => [content, i]));
const placeOfPath = new Map(about.paths.flatMap((paths, i) => paths.map((path) => [path, i])));
const pathOf = new Map(about.decisions.photos.map((photo) => [photo.content, photo.path])); // of decided photos, some of them gone
const KEY = `facetric cluster ${about.id}`;

const keyOf = (decision) => JSON.stringify([decision.do, decision.photos, decision.name || ""]);
const rowsOf = (record) => record.decisions.map((row) => ({
  do: row.do, photos: row.photos.map((i) => record.photos[i].content), name: row.name,
}));
const embedded = rowsOf(about.decisions); // these the clusters keep to already
const embeddedKeys = new Set(embedded.map(keyOf));
let decisions = restored();
let step = decisions.reduce((last, decision) => Math.max(last, decision.step || 0), 0);

function restored() {
  if (about.live) { // on a server, which keeps them
    for (const { content, path } of about.saved.photos) pathOf.set(content, path);
    return rowsOf(about.saved);
  }
  let stored = null;
  try { stored = JSON.parse(localStorage.getItem(KEY)); } catch { /* no storage, or not ours */ }
  if (!stored || !Array.isArray(stored.decisions)) return [...embedded];
  for (const [content, path] of stored.paths) if (!pathOf.has(content)) pathOf.set(content, path);
  if (stored.base === about.base) return stored.decisions;
  return [...embedded, ...stored.decisions.filter((one) => !embeddedKeys.has(keyOf(one)))];
}

function keep() {
  if (about.live) return send();
  const decided = new Set(decisions.flatMap((decision) => decision.photos));
  const paths = [...decided].map((content) => [content, knownPath(content)]);
  try { localStorage.setItem(KEY, JSON.stringify({ base: about.base, decisions, paths })); } catch {
    say("This browser keeps nothing: save decisions.json before you leave.");
  }
}

const place = (content) => placeOf.get(content) ?? placeOfPath.get(pathOf.get(content));
const knownPath = (content) => (placeOf.has(content) ? about.paths[placeOf.get(content)][0] : pathOf.get(content)) ?? "";

// Sets of contents that grow together.
class Union {
  parents = new Map();
  root(x) {
    while (this.parents.has(x)) x = this.parents.get(x);
    return x;
  }
  join(all) {
    for (const x of all) {
      const [a, b] = [this.root(all[0]), this.root(x)];
      if (a !== b) this.parents.set(b, a);
    }
  }
}

function nameOf(list) { // of every named content, the last one wins
  const names = new Map();
  for (const decision of list) if (decision.do === "name") for (const photo of decision.photos) names.set(photo, decision.name);
  for (const [photo, name] of names) if (!name) names.delete(photo);
  return names;
}

function unionOf(list) {
  const union = new Union();
  for (const decision of list) if (decision.do === "same") union.join(decision.photos);
  return union;
}

// Why these decisions cannot all hold, or null.
function contradiction(list) {
  const union = unionOf(list);
  const anchors = new Map();
  const known = new Map();
  for (const [photo, name] of nameOf(list)) {
    const root = union.root(photo);
    if (known.has(root) && known.get(root) !== name) return `one group would be named ${known.get(root)} and ${name}`;
    known.set(root, name);
    anchors.set(name, [...(anchors.get(name) || []), photo]);
  }
  for (const photos of anchors.values()) union.join(photos);
  for (const { do: what, photos } of list) {
    if (what === "different" && union.root(photos[0]) === union.root(photos[1])) {
      return `${fileName(photos[0])} and ${fileName(photos[1])} were said to be different`;
    }
  }
  return null;
}

const fileName = (content) => knownPath(content).split("/").pop();

// Add decisions as one step. False, with a message, when they contradict earlier ones.
function decide(...added) {
  const next = [...decisions, ...added.map((decision) => ({ ...decision, step: step + 1 }))];
  const problem = contradiction(next);
  if (problem) { say(`Not possible: ${problem}. Remove that decision first (Decisions).`); return false; }
  step += 1;
  decisions = next;
  keep();
  return true;
}

function undoLast() {
  const last = decisions[decisions.length - 1];
  if (!last || !last.step) return false;
  decisions = decisions.filter((decision) => decision.step !== last.step);
  keep();
  return true;
}

// The groups: those of the run, changed by what was decided since.
function currentGroups() {
  const groups = new Map(); // number → photos
  const of = Int32Array.from(about.clusters);
  const names = new Map(Object.entries(about.names).map(([cluster, name]) => [Number(cluster), name]));
  of.forEach((group, photo) => { if (group >= 0) { if (!groups.has(group)) groups.set(group, []); groups.get(group).push(photo); } });
  const rejected = new Set([...of.keys()].filter((photo) => of[photo] < 0));
  const union = unionOf(decisions);
  let next = about.medoids.length;
  const move = (photos, to) => {
    const moving = new Set(photos);
    for (const from of new Set(photos.map((photo) => of[photo]))) {
      const left = (groups.get(from) || []).filter((photo) => !moving.has(photo));
      if (left.length) groups.set(from, left); else groups.delete(from);
    }
    for (const photo of photos) of[photo] = to;
    if (to >= 0) groups.set(to, [...(groups.get(to) || []), ...photos]);
  };
  for (const decision of decisions) {
    if (embeddedKeys.has(keyOf(decision))) continue;
    const photos = decision.photos.map(place).filter((photo) => photo !== undefined && !rejected.has(photo));
    if (!photos.length) continue;
    if (decision.do === "same") {
      const target = Math.min(...photos.map((photo) => of[photo]));
      for (const other of new Set(photos.map((photo) => of[photo]))) {
        if (other === target) continue;
        if (names.has(other) && !names.has(target)) names.set(target, names.get(other));
        move(groups.get(other), target);
      }
    } else if (decision.do === "different" && photos.length === 2 && of[photos[0]] === of[photos[1]]) {
      const root = union.root(about.contents[photos[0]]);
      move(groups.get(of[photos[0]]).filter((photo) => union.root(about.contents[photo]) === root), next++);
    } else if (decision.do === "name") {
      const group = of[photos[0]];
      const other = decision.name && [...names].find(([number, name]) => name === decision.name && number !== group && groups.has(number));
      if (other) move(groups.get(group), other[0]);
      else if (decision.name) names.set(group, decision.name);
      else names.delete(group);
    } else if (decision.do === "reject") {
      for (const photo of photos) rejected.add(photo);
      move(photos, -1);
    }
  }
  return { groups, of, names, rejected, union };
}

function savedDecisions(list = decisions) {
  const places = new Map();
  const rows = list.map(({ do: what, photos, name }) => ({
    do: what,
    photos: photos.map((photo) => { if (!places.has(photo)) places.set(photo, places.size); return places.get(photo); }),
    ...(what === "name" ? { name } : {}),
  }));
  const photos = [...places.keys()].map((content) => ({ content, path: knownPath(content) }));
  return { format: about.decisions.format, photos, decisions: rows };
}
