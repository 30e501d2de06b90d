// On a server every decision is sent at once, as a change: what is new, and what was taken back. Nothing here runs from disk.

let onServer = [...decisions]; // as far as the server has confirmed them
let sending = null;

async function send({ tell = false } = {}) {
  if (sending) { await sending; return send({ tell }); }
  const wanted = [...decisions];
  const [before, after] = [onServer, wanted].map((list) => new Set(list.map(keyOf)));
  const added = wanted.filter((one) => !before.has(keyOf(one)));
  const removed = onServer.filter((one) => !after.has(keyOf(one)));
  if (added.length || removed.length) {
    sending = post(added, removed);
    const problem = await sending;
    sending = null;
    if (problem) return say(`Not saved: ${problem}`);
    onServer = wanted;
  }
  if (tell) say(`Saved: ${counted(onServer.length, "decision")}.`);
}

// What went wrong, or nothing. The file format of decisions, with the rows that are taken back beside those that are new.
async function post(added, removed) {
  const { decisions: rows, ...record } = savedDecisions([...added, ...removed]);
  const change = { ...record, decisions: rows.slice(0, added.length), removed: rows.slice(added.length) };
  try {
    const answer = await fetch(about.live, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(change) });
    return answer.ok ? "" : `${(await answer.json()).detail} Reload the page to see what the server has.`;
  } catch {
    return "the server does not answer. The button Save decisions tries again.";
  }
}

if (about.live) {
  byId("kept").textContent = "Kept on the server as soon as they are made, and kept to when the photos are grouped again.";
  byId("title").after(element("p", {}, element("a", { href: "./" }, "Search with an image")));
  window.addEventListener("beforeunload", (event) => { if (sending) event.preventDefault(); });
}
