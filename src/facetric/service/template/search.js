// An image, dropped, pasted, chosen or photographed, and the photos of the index that are like it. Names are only shown as text.
{
  const say = (text) => { byId("status").textContent = text; };
  const percent = (value) => `${Math.round(100 * value)}%`;
  const TOP = 24;
  let asked = null; // the request under way

  async function search(image) {
    asked?.abort();
    const own = asked = new AbortController();
    const shown = byId("query");
    URL.revokeObjectURL(shown.src);
    shown.src = URL.createObjectURL(image);
    shown.hidden = false;
    if (image.size > about.limits.megabytes * 1e6) return say(`An image may have ${about.limits.megabytes} MB.`);
    say("Searching …");
    byId("found").classList.add("busy");
    try {
      const answer = await fetch(`search?top=${TOP}`, { method: "POST", body: image, signal: own.signal, headers: { "Content-Type": "application/octet-stream" } });
      const found = await answer.json();
      if (own !== asked) return;
      if (answer.ok) show(found); else { byId("found").replaceChildren(); say(found.detail); }
    } catch {
      if (own === asked) say("The server does not answer: is it still running?");
    } finally {
      if (own === asked) byId("found").classList.remove("busy");
    }
  }

  function show(found) {
    const near = found.neighbors.filter((one) => one.is_similar_enough).length;
    say(verdict(found) + (near && near < found.neighbors.length ? " Pale photos are not similar enough." : ""));
    byId("found").replaceChildren(...found.neighbors.map(tile));
  }

  function verdict({ unknown, label, expected_precision: precision }) {
    if (unknown && label === null) return "Unknown: nothing in the index is similar enough. The nearest photos are:";
    if (unknown) return `Unknown, perhaps ${label}: right in ${percent(precision)} of such cases.`;
    if (label === null) return "The most similar photos.";
    return precision === null ? `${label} (precision not measured: too few labels).` : `${label}: right in ${percent(precision)} of such cases.`;
  }

  function tile(neighbor) {
    const similarity = neighbor.similarity.toFixed(3), file = neighbor.name.split("/").pop();
    return element("figure", { class: neighbor.is_similar_enough ? "" : "far" },
      element("a", { href: `photos/${neighbor.id}`, target: "_blank", rel: "noopener", title: neighbor.name },
        element("img", { loading: "lazy", src: `thumbnails/${neighbor.id}.jpg`, alt: neighbor.name })),
      element("figcaption", {}, element("strong", {}, neighbor.label ?? file),
        element("span", { class: "muted" }, neighbor.label === null ? similarity : `${similarity} · ${file}`),
        element("button", { type: "button", title: "Search with this photo", onclick: () => searchWith(neighbor.id) }, "Similar")));
  }

  async function searchWith(id) {
    const answer = await fetch(`photos/${id}`).catch(() => null);
    if (!answer?.ok) return say("The file of this photo is not there any more.");
    scrollTo({ top: 0 });
    return search(await answer.blob());
  }

  const imageIn = (list) => [...(list || [])].find((file) => file.type.startsWith("image/") || file.type === "");
  function take(list) {
    const found = imageIn(list);
    if (found) search(found); else say("That is not an image.");
  }

  for (const [button, input] of [["choose", "file"], ["photograph", "camera"]]) {
    byId(button).addEventListener("click", () => byId(input).click());
    byId(input).addEventListener("change", (event) => { if (event.target.files.length) take(event.target.files); event.target.value = ""; });
  }
  document.addEventListener("dragover", (event) => { event.preventDefault(); byId("drop").classList.add("over"); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("drop").classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
    take(event.dataTransfer.files);
  });
  document.addEventListener("paste", (event) => { if (event.clipboardData.files.length) take(event.clipboardData.files); });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const links = [...document.querySelectorAll("#found a")];
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined || !links.length) return;
    const at = links.findIndex((link) => link.closest("figure").contains(document.activeElement));
    links[Math.min(Math.max(at + by, 0), links.length - 1)].focus();
    event.preventDefault();
  });

  byId("title").textContent = about.title;
  byId("facts").textContent = `${counted(about.n_photos, "photo")}.`;
  document.documentElement.dataset.ready = "yes"; // for the tests
}
