// What the report knows: typed arrays in base64 beside the JSON block.

function textOf(id) {
  const block = byId("data-" + id); // sections have ids of their own
  return block ? block.textContent.trim() : "";
}

function bytesOf(id) {
  const binary = atob(textOf(id));
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

const n = about.n_images;
const k = about.n_neighbors;
const positions = new Float32Array(bytesOf("positions").buffer); // x, y of every image
const classOf = new Int32Array(bytesOf("labels").buffer); // index into about.class_names
const clusterOf = new Int32Array(bytesOf("clusters").buffer); // empty when the run has no clustering
const neighbors = new Int32Array(bytesOf("neighbors").buffer); // k per image, nearest first; -1 where there is none
const distances = new Float32Array(bytesOf("distances").buffer);
const medoids = new Int32Array(bytesOf("medoids").buffer); // image of every cluster
const failures = new Int32Array(bytesOf("failures").buffer); // queries whose nearest neighbor is wrong, worst first
const thumbnailOf = new Int32Array(bytesOf("thumbnails").buffer); // cell in the sheets; -1 where there is none

const RIGHT = 0, WRONG = 1, ALONE = 2;
const VERDICTS = ["right", "wrong", "alone"];
const MARKS = ["✓", "✗", "–"];
const membersOfClass = about.class_names.map(() => []);
for (let i = 0; i < n; i++) membersOfClass[classOf[i]].push(i);
const labeled = membersOfClass.filter((members) => members.length).length > 1 && membersOfClass.some((members) => members.length > 1);
const verdictOf = new Uint8Array(n);
for (let i = 0; i < n; i++) {
  const nearest = k ? neighbors[i * k] : -1;
  if (nearest >= 0 && classOf[nearest] === classOf[i]) verdictOf[i] = RIGHT;
  else verdictOf[i] = nearest < 0 || membersOfClass[classOf[i]].length < 2 ? ALONE : WRONG;
}

const className = (image) => about.class_names[classOf[image]];
const imageName = (image) => about.image_names[image];
const original = (image) => (about.start === null ? undefined : addressOf(about.start, imageName(image)));
const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(1) : "0.0") + " %";

function neighborsOf(image) {
  const found = [];
  for (let j = 0; j < k; j++) {
    const other = neighbors[image * k + j];
    if (other >= 0) found.push({ image: other, distance: distances[image * k + j], right: classOf[other] === classOf[image] });
  }
  return found;
}

// Colors: neighboring numbers get hues far apart; two lightnesses make N_COLORS of them.
const N_COLORS = 24;
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
const probe = document.body.appendChild(element("i", { hidden: true }));
const cssColors = new Map(); // of the theme; emptied when it changes
function cssColor(name) { // as a canvas takes it
  if (!cssColors.has(name)) {
    probe.style.color = `var(${name})`;
    cssColors.set(name, getComputedStyle(probe).color);
  }
  return cssColors.get(name);
}
function colorOf(code) {
  const step = code % N_COLORS;
  const hue = Math.round(step * 137.508) % 360;
  const lightness = isDark() ? [68, 56][step % 2] : [42, 54][step % 2];
  return `hsl(${hue} 68% ${lightness}%)`;
}
