// Making elements, and the thumbnails, which lie in a few large sheets that are decoded when first needed.

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return made;
}

const byId = (id) => document.getElementById(id);
const named = (text) => element("span", { class: "name" }, text);
const verdictMark = (verdict, text) => element("span", { class: VERDICTS[verdict] }, `${MARKS[verdict]} ${text}`);

const sheets = new Array(about.thumbnails.n_sheets);
function sheet(i) {
  if (!sheets[i]) {
    const picture = new Image();
    const ready = picture.decode.bind(picture);
    picture.src = `data:${about.thumbnails.type};base64,${textOf("sheet-" + i)}`;
    sheets[i] = { picture, usable: false };
    sheets[i].decoded = ready().then(() => { sheets[i].usable = true; document.dispatchEvent(new Event("sheet")); }, () => {});
  }
  return sheets[i];
}

// Where the image's thumbnail lies, or null; its sheet may still be decoding.
function thumbnail(image) {
  const cell = thumbnailOf[image];
  if (cell === undefined || cell < 0) return null;
  const { side, columns, per_sheet: perSheet } = about.thumbnails;
  const place = cell % perSheet;
  return {
    sheet: sheet(Math.floor(cell / perSheet)),
    x: (place % columns) * side,
    y: Math.floor(place / columns) * side,
  };
}

// Draw the image as a square at (x, y). False when it has no thumbnail, or not yet.
function drawThumbnail(context, image, x, y, size) {
  const found = thumbnail(image);
  if (!found || !found.sheet.usable) return false;
  const { side } = about.thumbnails;
  context.drawImage(found.sheet.picture, found.x, found.y, side, side, x, y, size, size);
  return true;
}

// A thumbnail as an element. Beside its class in words it is decoration, so it is silent unless `label` is given.
function picture(image, size, label) {
  const canvas = element("canvas", { class: "thumb", ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) });
  canvas.width = canvas.height = size * 2;
  canvas.style.width = size + "px";
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  const found = thumbnail(image);
  if (!found) {
    context.fillStyle = cssColor("--soft");
    context.font = `${Math.max(10, size / 3)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText("no image", size, size, size * 1.8);
  } else found.sheet.decoded.then(() => drawThumbnail(context, image, 0, 0, size * 2));
  return canvas;
}

// A clickable thumbnail with its class; `neighbor` marks it as right or wrong.
function tile(image, { neighbor, size = 84, caption } = {}) {
  const verdict = neighbor ? (neighbor.right ? "is-right" : "is-wrong") : "";
  const words = neighbor && `${neighbor.right ? "✓" : "✗"} ${neighbor.distance.toFixed(3)}`;
  const said = neighbor ? `${neighbor.right ? "right" : "wrong"}, distance ${neighbor.distance.toFixed(3)}: ` : "";
  return element("button", {
    type: "button", class: `tile ${verdict}`, title: imageName(image), "aria-label": said + className(image),
    "data-image": image, onclick: () => choose(image),
  }, picture(image, size), words && element("span", { class: neighbor.right ? "right" : "wrong" }, words), named(caption || className(image)));
}

// Fill `list` with made(i) for i < count, `page` at a time.
function inPages(list, count, page, made) {
  let shown = 0;
  const more = element("button", { type: "button" });
  const grow = () => {
    const first = shown;
    for (; shown < Math.min(first + page, count); shown++) list.append(made(shown));
    more.textContent = `Show ${number(Math.min(page, count - shown))} more of ${number(count)}`;
    if (shown >= count) more.remove();
  };
  more.addEventListener("click", () => {
    const first = shown;
    grow();
    const made = list.children[first];
    const target = made && (made.matches("button") ? made : made.querySelector("button"));
    if (target) target.focus();
  });
  list.replaceChildren();
  grow();
  return more;
}
