// Assemble the page: only the sections that the run has data for.

function themeIs(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  cssColors.clear();
  byId("theme").textContent = dark ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", dark ? "Switch to light colors" : "Switch to dark colors");
}

function repaint() {
  map.recolor();
  showLegend();
  showCurves();
}

function start() {
  byId("run-name").textContent = about.title;
  byId("run-facts").textContent = about.facts;
  byId("footer").textContent = about.footer;
  const wantsDark = window.matchMedia("(prefers-color-scheme: dark)");
  themeIs(wantsDark.matches);
  byId("theme").addEventListener("click", () => { themeIs(!isDark()); repaint(); });
  wantsDark.addEventListener("change", () => { themeIs(wantsDark.matches); repaint(); });

  const has = { map: n > 0, failures: k > 0 && labeled, clusters: medoids.length > 0, list: n > 0, curves: about.curves.length > 0 };
  for (const [id, there] of Object.entries(has)) byId(id).hidden = !there;
  const shown = [...document.querySelectorAll("main > section")].filter((section) => !section.hidden);
  byId("contents").append(element("ul", {}, shown.map((section) => element("li", {}, element("a", { href: "#" + section.id }, section.querySelector("h2").textContent)))));

  showScores();
  showOrigin();
  showCurves();
  if (n) {
    byId("map-about").textContent = about.map_about;
    startControls();
    map.resize();
    map.recolor();
    showLegend();
    choose(-1);
    showList();
    if (has.failures) showFailures();
    if (has.clusters) showClusters();
  }
  document.documentElement.dataset.ready = "yes"; // for the tests
}

start();
