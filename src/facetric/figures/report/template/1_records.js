// What the report knows: one JSON block, and typed arrays in base64. Names are only ever shown through textContent.

function textOf(id) {
  const block = document.getElementById("data-" + id); // sections have ids of their own
  return block ? block.textContent.trim() : "";
}

function bytesOf(id) {
  const binary = atob(textOf(id));
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

const about = JSON.parse(textOf("about"));
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
const verdictOf = new Uint8Array(n);
for (let i = 0; i < n; i++) {
  const nearest = k ? neighbors[i * k] : -1;
  if (nearest >= 0 && classOf[nearest] === classOf[i]) verdictOf[i] = RIGHT;
  else verdictOf[i] = nearest < 0 || membersOfClass[classOf[i]].length < 2 ? ALONE : WRONG;
}

const className = (image) => about.class_names[classOf[image]];
const imageName = (image) => about.image_names[image];
const number = (value) => value.toLocaleString("en");
const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(1) : "0.0") + " %";
const counted = (count, noun, plural) => `${number(count)} ${count === 1 ? noun : plural || noun + "s"}`;

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
const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function colorOf(code) {
  const step = code % N_COLORS;
  const hue = Math.round(step * 137.508) % 360;
  const lightness = isDark() ? [68, 56][step % 2] : [42, 54][step % 2];
  return `hsl(${hue} 68% ${lightness}%)`;
}
