// Shared by all pages. Names are only ever shown as text.

const byId = (id) => document.getElementById(id);
const about = JSON.parse(byId("data-about").textContent);
const number = (value) => value.toLocaleString("en");
const counted = (count, noun, plural) => `${number(count)} ${count === 1 ? noun : plural || noun + "s"}`;

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false && child !== ""));
  return made;
}

// The address of a file from the folder of the page; undefined where the name is no text.
const addressOf = (...paths) => (paths.every((path) => path.isWellFormed()) ? paths.flatMap((path) => path.split("/")).map(encodeURIComponent).join("/") : undefined);
