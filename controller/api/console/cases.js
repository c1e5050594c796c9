// List of cases with the filters of the API.

import { get } from "./api.js";
import { caseLink, check, choice, count, el, jobLink, nodeLink, none, percent, replace, state, table, text, when } from "./dom.js";
import { paced, subscribe } from "./live.js";

const PAGE = 100;
const COLUMNS = [
  "case",
  "state",
  "severity",
  "class",
  "blamed",
  "node",
  "job",
  "confidence",
  "first evidence",
  "decision of an operator, or outcome",
];

export async function showCases({ page, filters, remember, signal, announce }) {
  const view = { filters: { ...filters }, items: [], next: null };
  const list = el("div", {});
  const problem = el("p", { class: "problem", role: "alert" });
  const read = async () => {
    // As many entries as are shown, so that a change moves nothing away.
    const limit = Math.min(1000, Math.max(PAGE, view.items.length));
    const found = await get("/api/v1/cases", { query: { ...view.filters, limit }, signal });
    view.items = found.items;
    view.next = found.next;
  };
  const refresh = async () => {
    try {
      await read();
      problem.textContent = "";
    } catch (error) {
      if (error.name === "AbortError") throw error;
      view.items = [];
      view.next = null;
      problem.textContent = error.hint ? `${error.message}; ${error.hint}` : error.message;
    }
    showList(view, list, more);
  };
  const more = async () => {
    const found = await get("/api/v1/cases", { query: { ...view.filters, limit: PAGE, cursor: view.next }, signal });
    view.items.push(...found.items);
    view.next = found.next;
    showList(view, list, more);
  };
  const change = (name, value) => {
    view.filters[name] = value;
    view.items = [];
    remember(view.filters);
    refresh();
  };
  replace(page, el("h1", {}, "Cases"), filterFields(view.filters, change), problem, list);
  const again = paced(
    async () => {
      await refresh();
      announce("the list of cases changed");
    },
    500,
    signal,
  );
  subscribe((found) => {
    if (found.kind === "case" || found.kind === "gap") again();
  }, signal);
  await refresh();
}

function filterFields(filters, change) {
  const set = (name) => (value) => change(name, value);
  const states = [
    ["", "all"],
    ["true", "open"],
    ["false", "ended"],
  ];
  return el(
    "div",
    { class: "filters", role: "search", "aria-label": "Filter of cases" },
    choice("Cases", "open", states, filters.open ?? "", set("open")),
    text("Class", "class", filters.class ?? "", set("class"), { isFilter: true }),
    text("Node", "node", filters.node ?? "", set("node")),
    text("Job", "job", filters.job ?? "", set("job")),
    text("Layer", "layer", filters.layer ?? "", set("layer")),
    text("Taxonomy:category", "taxonomy", filters.taxonomy ?? "", set("taxonomy")),
    check("without drills", "drills", filters.drills === "false", (value) => change("drills", value ? "false" : "")),
  );
}

function showList(view, list, more) {
  const rows = view.items.map((found) => ({ key: `case ${found.id}`, cells: cells(found) }));
  const button = view.next === null ? null : el("button", { type: "button", id: "more-cases", on: { click: more } }, "Show older cases");
  replace(
    list,
    rows.length === 0
      ? el("p", {}, "No case matches.")
      : table(`${count(rows.length, "case")}${view.next === null ? "" : ", and older ones"}, newest first`, COLUMNS, rows),
    button,
  );
}

function cells(found) {
  return [
    caseLink(found.id),
    state(found.state),
    state(found.severity),
    classOf(found),
    found.blamed,
    nodeLink(found.node),
    jobLink(found.job),
    percent(found.confidence),
    when(found.first_at),
    el("span", { class: "prose" }, found.awaits_operator ?? found.outcome ?? none()),
  ];
}

/** Returns the class of a case with its marks: corrected, drill, replayed. */
export function classOf(found) {
  const marks = [];
  if (found.corrected_class !== null) marks.push(el("span", { class: "tag" }, `verdict ${found.class}`));
  if (found.is_drill) marks.push(el("span", { class: "tag" }, "drill"));
  if (found.is_replayed) marks.push(el("span", { class: "tag" }, "replayed"));
  return el(
    "span",
    {},
    found.corrected_class ?? found.class,
    marks.map((mark) => [" ", mark]),
  );
}
