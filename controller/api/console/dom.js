// Elements, text and figures. Text of the API becomes text nodes only; there is no way here to set markup.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and characters that reorder or hide text: they are shown as escapes.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Returns text with its hidden characters as escapes. */
export function printable(text) {
  return String(text).replace(HIDDEN, (found) => `\\u{${found.charCodeAt(0).toString(16)}}`);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, action] of Object.entries(value)) node.addEventListener(event, action);
    } else if (name.startsWith("on") || name === "style" || name === "srcdoc") {
      throw new Error(`attribute ${name} is not set as text`);
    } else {
      node.setAttribute(name, value === true ? "" : printable(value));
    }
  }
  append(node, ...children);
  return node;
}

/** Appends elements and texts; null and undefined are left out. */
export function append(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(printable(child)));
  }
}

/** Creates an element. */
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** Creates an element of SVG. */
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Returns a link within the console. */
export const link = (path, text, attributes = {}) => el("a", { href: `#/${path.map(encodeURIComponent).join("/")}`, ...attributes }, text);

export const caseLink = (id, text = `case ${id}`) => link(["cases", id], text);
export const jobLink = (name) => (name === null ? none() : link(["jobs", name], name));
export const nodeLink = (name) => (name === null ? none() : link(["nodes", name], name));

/** Returns a link to a publication; another scheme than HTTP is shown as text. */
export function publication(url, text) {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  const isWeb = parsed !== null && (parsed.protocol === "https:" || parsed.protocol === "http:");
  return isWeb ? el("a", { href: parsed.href, rel: "noreferrer noopener", target: "_blank" }, text) : el("span", {}, text);
}

/** Returns the mark of an absent value. */
export const none = () => el("span", { class: "quiet" }, "–");
export const orNone = (value) => (value === null || value === undefined || value === "" ? none() : value);

const SHORT = new Intl.DateTimeFormat(undefined, {
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** Returns a time of the API in the time zone of the browser. */
export function when(text) {
  if (text === null || text === undefined) return none();
  return el("time", { datetime: text, title: text }, SHORT.format(new Date(text)));
}

/** Formats a duration of milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const size = Math.abs(ms);
  if (size < 1000) return `${Math.round(ms)} ms`;
  if (size < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (size < 3_600_000) return `${(ms / 60_000).toFixed(1)} min`;
  return size < 172_800_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 86_400_000).toFixed(1)} d`;
}

/** Formats a size in bytes. */
export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? count : count.toFixed(1)} ${units[unit]}`;
}

export const number = (value) => (value === null || value === undefined ? none() : value.toLocaleString("en"));
export const percent = (value) => `${Math.round(value * 100)} %`;

/** Returns `1 node` and `2 nodes`. */
export const count = (value, noun) => `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;

// Shape of each state: a sign that differs without colour.
const SIGNS = new Map(
  Object.entries({
    open: "●",
    recovering: "◐",
    "fault-present": "▲",
    recovered: "✓",
    closed: "□",
    pending: "…",
    starting: "◔",
    running: "▶",
    finished: "✓",
    stopped: "■",
    healthy: "✓",
    cordoned: "⊘",
    lost: "✕",
    fencing: "◇",
    failure: "▲",
    warning: "△",
    info: "i",
    root: "●",
    cascade: "↳",
    confirmation: "=",
    noise: "·",
  }),
);

/** Returns a state with its sign. */
export function state(word) {
  const sign = el("span", { class: "sign", "aria-hidden": "true" }, SIGNS.get(word) ?? "◦");
  return el("span", { class: `state is-${/^[a-z-]+$/.test(word) ? word : "other"}` }, sign, word);
}

/** Returns a table of names and values. */
export function facts(pairs) {
  const rows = pairs.filter((pair) => pair !== null).map(([name, value]) => [el("dt", {}, name), el("dd", {}, orNone(value))]);
  return el("dl", { class: "facts" }, rows);
}

/** Returns a table with a caption; `columns` are the names, and each row is a list of cells or `{key, cells}`. */
export function table(caption, columns, rows, attributes = {}) {
  const head = el(
    "tr",
    {},
    columns.map((name) => el("th", { scope: "col" }, name)),
  );
  const body = el(
    "tbody",
    {},
    rows.map((row) => tableRow(columns, row)),
  );
  const inner = el("table", attributes, el("caption", {}, caption), el("thead", {}, head), body);
  // A wide table scrolls by itself, and is reachable by keyboard.
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, inner);
}

function tableRow(columns, row) {
  const cells = Array.isArray(row) ? row : row.cells;
  const key = Array.isArray(row) ? null : row.key;
  return el(
    "tr",
    { "data-key": key },
    cells.map((cell, place) => el("td", { "data-name": columns[place] }, orNone(cell))),
  );
}

/** Replaces the content of an element. The focus stays on the entry of the same key, open details stay open, and tables
 * stay where they were scrolled to. */
export function replace(node, ...children) {
  const active = node.contains(document.activeElement) ? document.activeElement : null;
  const key = active?.closest("[data-key]")?.getAttribute("data-key") ?? null;
  const id = active?.id || null;
  const titles = new Map([...node.querySelectorAll("summary")].map((title) => [title.textContent, title.parentElement.open]));
  const places = new Map([...node.querySelectorAll(".scroll")].map((frame) => [frame.querySelector("th")?.textContent, frame.scrollLeft]));
  node.replaceChildren();
  append(node, ...children);
  for (const title of node.querySelectorAll("summary")) {
    const wasOpen = titles.get(title.textContent);
    if (wasOpen !== undefined) title.parentElement.open = wasOpen;
  }
  for (const frame of node.querySelectorAll(".scroll")) frame.scrollLeft = places.get(frame.querySelector("th")?.textContent) ?? 0;
  if (active === null) return;
  const found = id === null ? null : document.getElementById(id);
  const row = key === null ? null : node.querySelector(`[data-key="${CSS.escape(key)}"]`);
  (found ?? row?.querySelector("a, button") ?? row)?.focus({ preventScroll: true });
}

/** Returns a heading with its section. */
export const section = (title, ...children) => el("section", {}, el("h2", {}, title), children);

/** Returns a selection with a label. */
export function choice(label, name, options, value, change) {
  const select = el(
    "select",
    { name, on: { change: () => change(select.value) } },
    options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)),
  );
  return el("label", { class: "field" }, el("span", {}, label), select);
}

/** Returns a check box with a label. */
export function check(label, name, value, change) {
  const box = el("input", { type: "checkbox", name, checked: value, on: { change: () => change(box.checked) } });
  return el("label", { class: "field is-check" }, box, el("span", {}, label));
}

/** Silence of the keyboard after which a text that is being entered is used, milliseconds. */
const PAUSE_MS = 120;

/** Returns a text field with a label; `change` gets the text when it is entered, and with `isLive` while it is. */
export function text(label, name, value, change, { isLive = false, isFilter = false } = {}) {
  let timer = null;
  // A page that was left meanwhile uses nothing.
  const use = () => field.isConnected && change(field.value.trim());
  const useSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(use, PAUSE_MS);
  };
  const field = el("input", {
    type: "search",
    name,
    value,
    autocomplete: "off",
    spellcheck: "false",
    maxlength: "512",
    "data-filter": isFilter,
    on: isLive ? { input: useSoon } : { change: use },
  });
  return el("label", { class: "field" }, el("span", {}, label), field);
}
