// Pages by the fragment of the URL, keyboard, help and the state of the stream of changes.

import { ApiProblem } from "./api.js";
import { el, replace } from "./dom.js";
import * as live from "./live.js";
import { showFleet } from "./fleet.js";
import { showCases } from "./cases.js";
import { showCase } from "./case.js";
import { showJob, showJobs } from "./job.js";
import { showNode } from "./node.js";
import { showFailures } from "./failures.js";

const main = document.getElementById("main");
const help = document.getElementById("help");
const LISTS = new Map([
  ["fleet", showFleet],
  ["cases", showCases],
  ["jobs", showJobs],
  ["failures", showFailures],
]);
const ENTRIES = new Map([
  ["cases", showCase],
  ["jobs", showJob],
  ["nodes", showNode],
]);
const TITLES = new Map([
  ["fleet", "Fleet"],
  ["cases", "Case"],
  ["jobs", "Job"],
  ["failures", "Failure mix"],
  ["nodes", "Node"],
]);

let current = new AbortController();
let shown = null;

/** Parts of the fragment: list, name of an entry, filters. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter((part) => part !== "");
  let name = null;
  try {
    name = parts.length > 1 ? decodeURIComponent(parts[1]) : null;
  } catch {
    name = parts[1];
  }
  return { list: parts[0] ?? "fleet", name, filters: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

/** Writes filters into the URL, so that it can be copied and survives a reload. */
function remember(filters) {
  const given = Object.entries(filters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  const path = location.hash.split("?")[0] || "#/fleet";
  history.replaceState(null, "", query ? `${path}?${query}` : path);
}

/** Shows the problem of an action; a page that is left ends its requests, which is none. */
function onRejection(event) {
  const { reason } = event;
  if (reason?.name !== "AbortError" && !(reason instanceof ApiProblem)) return;
  event.preventDefault();
  if (reason instanceof ApiProblem) document.getElementById("problem").textContent = reason.message;
}

/** Reports a change to screen readers. */
function announce(text) {
  document.getElementById("announce").textContent = text;
}

async function navigate() {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  const { list, name, filters } = place();
  const show = (name === null ? LISTS : ENTRIES).get(list);
  for (const entry of document.querySelectorAll("#pages a")) {
    const isCurrent = entry.getAttribute("href") === `#/${list === "nodes" ? "fleet" : list}`;
    if (isCurrent) entry.setAttribute("aria-current", "page");
    else entry.removeAttribute("aria-current");
  }
  document.title = `${[TITLES.get(list) ?? "Not found", name].filter(Boolean).join(" ")} · Rankguard`;
  const page = el("div", { class: "page" });
  const isFirst = shown === null;
  document.getElementById("problem").textContent = "";
  shown = `${list}/${name}`;
  main.replaceChildren(page);
  if (!isFirst) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  if (show === undefined) {
    replace(page, el("h1", {}, "Not found"), el("p", {}, "There is no such page."));
    return;
  }
  try {
    await show({ page, name, filters, remember, signal, announce });
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    const isProblem = error instanceof ApiProblem;
    const again = el("button", { type: "button", on: { click: navigate } }, "Try again");
    replace(
      page,
      el("h1", {}, error.status === 404 ? "Not found" : "Cannot show this page"),
      el("p", { class: "problem", role: "alert" }, error.message),
      isProblem && error.hint ? el("p", {}, error.hint) : null,
      again,
    );
    if (!isProblem) throw error;
  }
}

/** Moves between the entries of the first list of the page. */
function step(by) {
  const entries = [...main.querySelectorAll("[data-key]")].map((row) => row.querySelector("a, button") ?? row);
  if (entries.length === 0) return;
  const active = document.activeElement?.closest("[data-key]");
  const at = entries.findIndex((entry) => active?.contains(entry));
  const next = at < 0 ? 0 : Math.min(entries.length - 1, Math.max(0, at + by));
  entries[next].focus();
  entries[next].scrollIntoView({ block: "nearest" });
}

function up() {
  const { list, name } = place();
  if (name !== null) location.hash = list === "nodes" ? "#/fleet" : `#/${list}`;
}

let isGoing = false;

function onKey(event) {
  const inField = event.target instanceof HTMLElement && event.target.closest("input, select, textarea") !== null;
  if (event.key === "Escape" && inField) event.target.blur();
  if (inField || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const wasGoing = isGoing;
  isGoing = false;
  if (wasGoing) {
    const target = { f: "#/fleet", c: "#/cases", j: "#/jobs", m: "#/failures" }[event.key];
    if (target !== undefined) location.hash = target;
    return;
  }
  const actions = {
    g: () => {
      isGoing = true;
    },
    j: () => step(1),
    k: () => step(-1),
    u: up,
    "/": () => main.querySelector("[data-filter]")?.focus(),
    "?": () => help.showModal(),
  };
  const action = actions[event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
}

let isLost = false;

function showLive(state, change) {
  const text = document.getElementById("live-text");
  const time = new Date().toLocaleTimeString(undefined, { hourCycle: "h23" });
  const wasLost = isLost;
  isLost = state !== "live";
  if (isLost && wasLost) return;
  document.getElementById("live").classList.toggle("is-lost", isLost);
  document.getElementById("live-mark").textContent = isLost ? "✕" : "●";
  if (isLost) text.textContent = `not live since ${time}`;
  else text.textContent = change === null ? "live" : `live, changed ${time}`;
  if (isLost || wasLost) announce(isLost ? "The page is no longer live" : "The page is live again");
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("help-button").addEventListener("click", () => help.showModal());
document.getElementById("help-close").addEventListener("click", () => help.close());
document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", navigate);
window.addEventListener("unhandledrejection", onRejection);
live.start(showLive);
navigate();
