// What people do: name, merge, move out, confirm, reject, answer questions, undo and save.

const contentsOf = (photos) => photos.map((photo) => about.contents[photo]);

// The named photos of a group: a new name is theirs too.
const anchorsOf = (group) => {
  const names = nameOf(decisions);
  return now.groups.get(group).filter((photo) => names.has(about.contents[photo]));
};

function done(text) {
  show();
  say(text);
}

function nameGroup(group, name) {
  const cleaned = name.split(/\s+/).filter(Boolean).join(" ");
  if (cleaned === (now.names.get(group) || "")) return;
  naming = null;
  const photos = [...new Set([medoidOf(group), ...anchorsOf(group)])];
  if (decide({ do: "name", photos: contentsOf(photos), name: cleaned })) done(cleaned ? `Named ${cleaned}.` : "The name was removed.");
  else show();
}

// The field for the name of the photo's group; a photo that is alone is shown as a group of one meanwhile.
function enterName(photo) {
  if (now.of[photo] < 0) return say(`${nameIn(photo)} is rejected: u takes it back, or remove it among Decisions.`);
  naming = now.of[photo];
  show();
  const field = tileOf(photo).closest("section").querySelector("input.name");
  field.scrollIntoView({ block: "nearest" });
  field.focus();
}

function leaveName() {
  if (naming === null || document.activeElement?.matches("input.name")) return;
  naming = null;
  show();
}

// Photos are the same: should their groups have two names, that of the first stays.
function join(photos, text) {
  const groups = [...new Set(photos.map((photo) => now.of[photo]))].filter((group) => group >= 0);
  const name = groups.map((group) => now.names.get(group)).find(Boolean);
  const renamed = groups.filter((group) => now.names.has(group) && now.names.get(group) !== name).flatMap(anchorsOf);
  const naming = renamed.length ? [{ do: "name", photos: contentsOf(renamed), name }] : [];
  return decide(...naming, { do: "same", photos: contentsOf(photos) }) && (done(text), true);
}

// The photo is not of the group that `other` is in; if the group has its name from the photo, it keeps it.
function part(photo, other, text) {
  const names = nameOf(decisions);
  const name = now.of[photo] === now.of[other] && names.get(about.contents[photo]);
  const naming = name ? [
    { do: "name", photos: contentsOf([photo]), name: "" }, { do: "name", photos: contentsOf([other]), name },
  ] : [];
  return decide(...naming, { do: "different", photos: contentsOf([photo, other]) }) && (done(text), true);
}

function moveOut(photo) {
  const group = now.of[photo];
  const others = group < 0 ? [] : ordered(group).filter((other) => other !== photo);
  if (!others.length) return say(`${nameIn(photo)} is in no group.`);
  const next = nextTo(photo);
  const medoid = medoidOf(group);
  const reference = medoid !== photo ? medoid : others.reduce((best, other) => (about.ambiguity[other] < about.ambiguity[best] ? other : best));
  if (part(photo, reference, `${nameIn(photo)} was moved out.`)) select(next, { focus: true });
}

function confirmPhoto(photo) {
  const group = now.of[photo];
  const medoid = group < 0 ? photo : medoidOf(group);
  if (medoid === photo) return say("Choose a photo of a group other than its medoid, or Confirm all.");
  const next = nextTo(photo);
  if (join([medoid, photo], `${nameIn(photo)} stays with ${titleOf(group)}.`)) select(next, { focus: true });
}

function confirmGroup(group) {
  if (now.groups.get(group).length < 2) return;
  join([medoidOf(group), ...now.groups.get(group).filter((photo) => photo !== medoidOf(group))], `${titleOf(group)} is confirmed.`);
}

function mergeStep(group) {
  const from = merging;
  merging = null;
  if (from === null) { merging = group; return done(`Choose the group to merge with ${titleOf(group)}: m, or Merge here.`); }
  if (from === group || !now.groups.has(from)) return done("Nothing was merged.");
  const photos = [medoidOf(group), ...now.groups.get(group), ...now.groups.get(from)];
  if (!join([...new Set(photos)], `${titleOf(from)} and ${titleOf(group)} are one group.`)) show();
}

function reject(photo) {
  const next = nextTo(photo);
  const names = nameOf(decisions);
  const content = about.contents[photo];
  const others = now.of[photo] < 0 ? [] : now.groups.get(now.of[photo]).filter((other) => other !== photo);
  const naming = names.has(content) && others.length ? [
    { do: "name", photos: [content], name: "" }, { do: "name", photos: contentsOf([others[0]]), name: names.get(content) },
  ] : [];
  if (now.rejected.has(photo)) return say(`${nameIn(photo)} is rejected: u takes it back, or remove it among Decisions.`);
  if (decide(...naming, { do: "reject", photos: [content] })) { done(`${nameIn(photo)} was rejected.`); select(next, { focus: true }); }
}

function undo() {
  if (undoLast()) done("Undone."); else say("There is nothing to undo.");
}

function save() {
  if (about.live) return send({ tell: true });
  const file = new Blob([JSON.stringify(savedDecisions(), null, 1)], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(file), download: "decisions.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  say(`Saved ${counted(decisions.length, "decision")}: facetric cluster … --decisions decisions.json`);
}

const TOLD = {
  same: (names) => `same: ${names}`, different: (names) => `different: ${names}`, reject: (names) => `rejected: ${names}`,
  name: (names, name) => (name ? `named ${name}: ${names}` : `name removed: ${names}`),
};

function listDecisions() {
  const rows = [...decisions].reverse().map((decision) => {
    const names = decision.photos.slice(0, 4).map(fileName).join(", ") + (decision.photos.length > 4 ? `, … (${decision.photos.length})` : "");
    const remove = element("button", { type: "button", onclick: () => {
      decisions = decisions.filter((other) => other !== decision);
      keep();
      done("Removed.");
      listDecisions();
    } }, "Remove");
    return element("li", {}, element("span", {}, TOLD[decision.do](names, decision.name)), remove);
  });
  byId("decisions-list").replaceChildren(...rows);
  if (!byId("decisions").open) byId("decisions").showModal();
}

// Questions, the most ambiguous first, without those that follow from what was decided.
let skipped = new Set();

function openQuestions() {
  const { union } = now;
  const apart = new Set(decisions.filter((decision) => decision.do === "different").map(({ photos }) => photos.map((x) => union.root(x)).sort().join()));
  return about.questions.filter(([a, b], i) => {
    if (skipped.has(i) || now.rejected.has(a) || now.rejected.has(b)) return false;
    const roots = [a, b].map((photo) => union.root(about.contents[photo]));
    return roots[0] !== roots[1] && !apart.has(roots.sort().join());
  });
}

function figure(id, photo, alone) {
  const picture = pictureOf(photo, { src: original(photo), alt: nameIn(photo) });
  picture.addEventListener("error", () => { picture.src = thumbnail(photo); }, { once: true }); // a format that browsers do not show
  const group = now.of[photo];
  const others = alone ? [] : ordered(group).filter((other) => other !== photo).slice(0, 6);
  byId(id).replaceChildren(picture, element("figcaption", {}, `${nameIn(photo)} · ${titleOf(group)}`),
    element("div", { class: "others" }, others.map((other) => pictureOf(other))));
}

function ask() {
  const open = openQuestions();
  const dialog = byId("question");
  if (!dialog.open) { skipped = new Set(); dialog.showModal(); }
  const found = open[0];
  dialog.classList.toggle("empty", !found);
  byId("question-about").textContent = found ? `${counted(open.length, "question")} left` : "No questions left. Save your decisions.";
  for (const id of ["first", "second"]) byId(id).replaceChildren();
  if (found) { figure("first", found[0], now.of[found[0]] === now.of[found[1]]); figure("second", found[1]); }
}

function answer(key) {
  const found = openQuestions()[0];
  if (key === "u") undo();
  else if (!found) return;
  else if (key === "y") join([found[1], found[0]], "Same.");
  else if (key === "n") part(found[0], found[1], "Different.");
  else skipped.add(about.questions.indexOf(found));
  const refused = found && (key === "y" || key === "n") && openQuestions()[0] === found;
  if (refused) skipped.add(about.questions.indexOf(found)); // it contradicts an earlier decision
  ask();
}
