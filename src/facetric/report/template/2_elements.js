// Names, tiles and the thumbnails, which lie in a few large sheets that are decoded when first needed.

const named = (text) => element("span", { class: "name", title: text }, text);
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

const isDrawable = (image) => Boolean(thumbnail(image)?.sheet.usable);

// Draw the image as a square at (x, y), once its sheet is decoded.
function drawThumbnail(context, image, x, y, size) {
  const found = thumbnail(image), { side } = about.thumbnails;
  context.drawImage(found.sheet.picture, found.x, found.y, side, side, x, y, size, size);
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
  } else found.sheet.decoded.then(() => isDrawable(image) && drawThumbnail(context, image, 0, 0, size * 2));
  return canvas;
}

// A clickable thumbnail with its class. `right` frames it as of the class that was wanted or not; `distance` is shown.
function tile(image, { right, distance, size = 84, caption = className(image) } = {}) {
  const judged = labeled && right !== undefined;
  const words = [judged && (right ? "✓" : "✗"), distance !== undefined && distance.toFixed(3)].filter(Boolean);
  const said = [judged && (right ? "right" : "wrong"), distance !== undefined && `distance ${distance.toFixed(3)}`].filter(Boolean).join(", ");
  return element("button", {
    type: "button", class: `tile ${judged ? (right ? "is-right" : "is-wrong") : ""}`, title: `${className(image)}\n${imageName(image)}`,
    "aria-label": (said ? said + ": " : "") + className(image), "data-image": image, onclick: () => choose(image),
  }, picture(image, size), words.length > 0 && element("span", { class: judged ? (right ? "right" : "wrong") : "alone" }, words.join(" ")), caption && named(caption));
}

// The photo itself, linked, where its file can be reached; the thumbnail until then, and where it cannot.
function large(image) {
  const small = picture(image, 320, `selected image of class ${className(image)}`), address = original(image);
  if (!address) return element("div", { class: "large" }, small);
  const link = element("a", { class: "large", href: address, target: "_blank", rel: "noopener", title: `Open ${imageName(image)}` }, small);
  const photo = new Image();
  photo.alt = `selected image of class ${className(image)}`;
  photo.addEventListener("load", () => link.replaceChildren(photo));
  photo.src = address;
  return link;
}

// Fill `list` with made(i) for i < count: `first` of them, then `page` more at a time by the button that is returned.
function inPages(list, count, made, { first: opening, page }) {
  let shown = 0;
  const more = element("button", { type: "button" });
  const grow = (by) => {
    const end = Math.min(shown + by, count);
    for (; shown < end; shown++) list.append(made(shown));
    more.textContent = `Show ${number(Math.min(page, count - shown))} more of ${number(count)}`;
    more.hidden = shown >= count;
  };
  more.addEventListener("click", () => {
    const first = shown;
    grow(page);
    const made = list.children[first];
    const target = made && (made.matches("button") ? made : made.querySelector("button"));
    if (target) target.focus();
  });
  list.replaceChildren();
  grow(opening);
  return more;
}
