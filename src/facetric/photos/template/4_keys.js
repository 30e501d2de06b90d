// Mouse, finger and keyboard.

const tiles = () => [...document.querySelectorAll("main section:not([hidden]) .tile")];

function nextTo(photo) {
  const found = tileOf(photo);
  const beside = found && (found.nextElementSibling || found.previousElementSibling);
  return beside ? Number(beside.dataset.photo) : null;
}

function walk(key) {
  const all = tiles();
  const at = all.indexOf(tileOf(current));
  if (at < 0) return select(all.length ? Number(all[0].dataset.photo) : null, { focus: true });
  let to = at + { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (key === "ArrowDown" || key === "ArrowUp") {
    const box = all[at].getBoundingClientRect();
    const down = key === "ArrowDown" ? 1 : -1;
    let row = null;
    to = at;
    for (let i = at + down; i >= 0 && i < all.length; i += down) {
      const other = all[i].getBoundingClientRect();
      if (Math.abs(other.top - box.top) < 4) continue;
      if (row !== null && Math.abs(other.top - row) >= 4) break;
      row = other.top;
      if (to === at || Math.abs(other.left - box.left) < Math.abs(all[to].getBoundingClientRect().left - box.left)) to = i;
    }
  }
  if (all[to]) select(Number(all[to].dataset.photo), { focus: true });
}

function nextGroup(by) {
  const all = [...document.querySelectorAll("main section:not([hidden])")].filter((section) => section.querySelector(".tile"));
  const at = all.findIndex((section) => section.contains(tileOf(current)));
  const to = at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1);
  if (!all[to]) return;
  all[to].scrollIntoView({ block: "start" });
  select(Number(all[to].querySelector(".tile").dataset.photo), { focus: true });
}

const groupNow = () => (current === null || now.of[current] < 0 ? null : now.of[current]);
const ON_PHOTO = {
  x: () => moveOut(current),
  c: () => confirmPhoto(current),
  C: () => groupNow() !== null && confirmGroup(groupNow()),
  r: () => reject(current),
  m: () => groupNow() !== null && mergeStep(groupNow()),
  o: () => byId("original").click(),
  e: () => enterName(current),
};
const ANYWHERE = {
  q: ask, u: undo, s: save, j: () => nextGroup(1), k: () => nextGroup(-1), "?": () => byId("keys").showModal(),
  Escape: () => { if (merging !== null) { merging = null; done("Nothing was merged."); } },
};

function press(key) {
  if (byId("question").open) {
    if (key === "Escape") byId("question").close();
    else if (["y", "n", "u", "ArrowRight"].includes(key)) answer(key);
    else return false;
  } else if (document.querySelector("dialog[open]")) {
    if (key !== "Escape") return false;
    document.querySelector("dialog[open]").close();
  } else if (key.startsWith("Arrow")) walk(key);
  else if (ANYWHERE[key]) ANYWHERE[key]();
  else if (ON_PHOTO[key] && current !== null) ON_PHOTO[key]();
  else return false;
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input")) {
    if (event.key === "Enter" || event.key === "Escape") event.target.blur();
    return;
  }
  if (press(event.key)) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const section = button.closest("section[data-group]");
  if (button.matches(".tile")) select(Number(button.dataset.photo));
  else if (button.matches("[data-key]")) press(button.dataset.key);
  else if (button.matches(".confirm")) confirmGroup(Number(section.dataset.group));
  else if (button.matches(".merge")) mergeStep(Number(section.dataset.group));
});
document.addEventListener("focusin", (event) => {
  if (event.target.matches(".tile") && Number(event.target.dataset.photo) !== current) select(Number(event.target.dataset.photo));
});
document.addEventListener("change", (event) => {
  if (event.target.matches("input.name")) nameGroup(Number(event.target.closest("section").dataset.group), event.target.value);
});
document.addEventListener("focusout", (event) => { if (event.target.matches("input.name")) setTimeout(leaveName); });
byId("filter").addEventListener("input", show);
for (const [id, key] of [["ask", "q"], ["undo", "u"], ["save", "s"], ["help", "?"]]) byId(id).addEventListener("click", () => press(key));
byId("list").addEventListener("click", listDecisions);

byId("title").textContent = about.title;
byId("facts").textContent = about.facts;
show();
document.documentElement.dataset.ready = "yes"; // for the tests
