// Fleet: map of the nodes by failure domain, open cases, and the nodes that need attention.

import { all, get, resource } from "./api.js";
import { FleetMap, MARKS, markOf, shapeOf } from "./fleet-map.js";
import { append, caseLink, count, el, jobLink, nodeLink, none, replace, section, state, svg, table, text, when } from "./dom.js";
import { paced, subscribe } from "./live.js";

/** Rows of the table before "Show more". */
const ROWS = 100;
/** Changed nodes that are read one by one; for more the list is read. */
const SINGLE = 20;

export async function showFleet({ page, filters, remember, signal, announce }) {
  const view = { nodes: [], mark: filters.mark ?? "", words: filters.q ?? "", wanted: [], rows: ROWS, isPartial: true };
  const parts = build(view, { remember, onFilter: () => refresh(view, parts), signal });
  replace(page, parts.elements);
  parts.map = new FleetMap({
    frame: parts.frame,
    canvas: parts.canvas,
    spacer: parts.spacer,
    signal,
    onSelect: (node) => describe(parts, node),
    onOpen: (node) => {
      location.hash = `#/nodes/${encodeURIComponent(node.name)}`;
    },
  });
  // Two displays: the first page at once, and the whole list.
  const display = (items, isPartial) => {
    view.isPartial = isPartial;
    if (isPartial && view.nodes.length > 0) return;
    view.nodes = [...items];
    parts.map.show(view.nodes);
    refresh(view, parts);
  };
  const readCases = () => showOpenCases(parts, signal);
  const readMissed = watch(view, parts, { signal, announce, readCases });
  await Promise.all([all("/api/v1/nodes", { signal, onPage: display }), readCases()]);
  readMissed();
}

/** Reads again what changes. Returns a function that reads what changed while the list was first read. */
function watch(view, parts, { signal, announce, readCases }) {
  const changed = new Set();
  const states = new Map();
  let isAllWanted = false;
  const readAll = paced(
    async () => {
      const nodes = await all("/api/v1/nodes", { signal });
      view.nodes = nodes;
      view.isPartial = false;
      parts.map.show(nodes);
      refresh(view, parts);
    },
    3000,
    signal,
  );
  const readChanged = paced(
    async () => {
      const names = [...changed];
      changed.clear();
      if (names.length > SINGLE) return readAll();
      const byName = new Map(view.nodes.map((node) => [node.name, node]));
      for (const name of names) {
        const node = await get(resource("nodes", name), { signal }).catch((error) => {
          if (error.status === 404) return null;
          throw error;
        });
        if (node === null) byName.delete(name);
        else byName.set(name, node);
      }
      view.nodes = [...byName.values()];
      parts.map.show(view.nodes);
      refresh(view, parts);
      announce(names.length === 1 ? `node ${names[0]} changed` : `${names.length} nodes changed`);
    },
    300,
    signal,
  );
  const readOpen = paced(readCases, 1000, signal);
  const readList = () => {
    if (view.isPartial) isAllWanted = true;
    else readAll();
  };
  subscribe((change) => {
    if (change.kind === "node") {
      changed.add(change.name);
      if (!view.isPartial) readChanged();
    } else if (change.kind === "case") {
      readOpen();
    } else if (change.kind === "job") {
      // Ranks are placed and removed when the state changes; a commit of a checkpoint changes no node.
      if (states.get(change.name) !== change.state) readList();
      states.set(change.name, change.state);
    } else {
      readList();
      readOpen();
    }
  }, signal);
  return () => {
    if (isAllWanted) readAll();
    if (changed.size > 0) readChanged();
  };
}

function build(view, { remember, onFilter }) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const spacer = el("div", { class: "spacer" }, canvas);
  const frame = el(
    "div",
    {
      class: "map",
      tabindex: "0",
      role: "application",
      "aria-label": "Fleet map. Arrow keys move between nodes, Enter opens a node.",
      "aria-describedby": "selected",
    },
    spacer,
  );
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Marks: select one to filter" });
  const selected = el("p", { id: "selected", class: "selected", "aria-live": "polite" }, "Point at a node, or move to it with the arrow keys.");
  const summary = el("span", {});
  const open = el("span", {});
  const domains = el("p", { class: "quiet" });
  const cases = el("div", {});
  const list = el("div", {});
  const update = () => {
    view.rows = ROWS;
    remember({ mark: view.mark, q: view.words });
    onFilter();
  };
  const filter = text(
    "Filter nodes (name, failure domain, job, reason)",
    "q",
    view.words,
    (value) => {
      view.words = value;
      update();
    },
    { isLive: true, isFilter: true },
  );
  const setMark = (mark) => {
    view.mark = view.mark === mark ? "" : mark;
    update();
  };
  const elements = [
    el("h1", {}, "Fleet"),
    el("p", { class: "summary" }, summary, open),
    section("Map", legend, domains, frame, selected),
    section("Open cases", cases),
    el("div", { class: "filters" }, filter),
    list,
  ];
  return { elements, canvas, spacer, frame, legend, selected, summary, open, domains, cases, list, setMark, onFilter };
}

const texts = new WeakMap();

/** Returns the text of a node that a filter searches; made once, since a filter of 10,000 nodes reads it at each letter. */
function textOf(node) {
  let found = texts.get(node);
  if (found === undefined) {
    found = `${node.name} ${node.failure_domain} ${node.job ?? ""} ${node.reason ?? ""}`.toLowerCase();
    texts.set(node, found);
  }
  return found;
}

function matches(view, node, mark) {
  if (view.mark !== "" && mark !== view.mark) return false;
  return view.wanted.every((word) => textOf(node).includes(word));
}

/** Shows the numbers, the legend and the table for the present nodes and filters. */
function refresh(view, parts) {
  view.wanted = view.words
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  const counts = new Map();
  for (const node of view.nodes) {
    const mark = markOf(node);
    counts.set(mark, (counts.get(mark) ?? 0) + 1);
  }
  const good = (counts.get("busy") ?? 0) + (counts.get("idle") ?? 0);
  const bad = view.nodes.length - good;
  const partial = view.isPartial ? " (reading further nodes …)" : "";
  replace(
    parts.summary,
    `${count(view.nodes.length, "node")}, ${bad === 0 ? "all usable and without a known fault" : `${bad.toLocaleString("en")} of them not usable or faulty`}${partial}`,
  );
  replace(
    parts.legend,
    MARKS.map((mark) => legendEntry(mark, counts.get(mark.key) ?? 0, view, parts)),
  );
  const hasDomains = view.nodes.some((node) => node.failure_domain !== "");
  parts.domains.textContent =
    hasDomains || view.nodes.length === 0
      ? "One block is one failure domain (agent.failure_domain): a rack, a switch or a power feed."
      : "No node has a failure domain (agent.failure_domain), so the map has no racks.";
  const isFiltered = view.mark !== "" || view.words !== "";
  parts.map.filter((node, mark) => !isFiltered || matches(view, node, mark));
  showTable(view, parts, isFiltered);
}

function legendEntry(mark, total, view, parts) {
  const picture = svg(
    "svg",
    { viewBox: "0 0 16 16", width: "16", height: "16", class: `mark-${mark.key}`, "aria-hidden": "true" },
    shapeOf(mark.key, 0, 0, 16).map(({ points, isFilled, isClosed }) =>
      svg(isFilled || isClosed ? "polygon" : "polyline", {
        points: points.map((point) => point.join(",")).join(" "),
        class: isFilled ? "is-filled" : "is-line",
      }),
    ),
  );
  return el(
    "button",
    {
      type: "button",
      id: `mark-${mark.key}`,
      title: mark.doc,
      "aria-pressed": String(view.mark === mark.key),
      on: { click: () => parts.setMark(mark.key) },
    },
    picture,
    ` ${mark.name} `,
    el("b", {}, total.toLocaleString("en")),
  );
}

function showTable(view, parts, isFiltered) {
  // What is worst comes first; nodes of one mark are sorted by name.
  const byMark = new Map(MARKS.map((mark) => [mark.key, []]));
  for (const node of view.nodes) {
    const mark = markOf(node);
    const isWanted = isFiltered ? matches(view, node, mark) : mark !== "busy" && mark !== "idle";
    if (isWanted) byMark.get(mark)?.push(node);
  }
  const wanted = [...byMark.values()].flat();
  const title = isFiltered ? "Nodes that match the filter" : "Nodes that need attention";
  const rows = wanted.slice(0, view.rows).map((node) => ({
    key: `node ${node.name}`,
    cells: [
      nodeLink(node.name),
      state(node.state),
      markName(node),
      orDash(node.failure_domain),
      jobLink(node.job),
      node.faulty_in_use === null ? none() : caseLink(node.faulty_in_use),
      el("span", { class: "prose" }, node.reason ?? "–"),
    ],
  }));
  const more =
    wanted.length > view.rows
      ? el(
          "button",
          {
            type: "button",
            id: "more-nodes",
            on: {
              click: () => {
                view.rows += ROWS * 5;
                parts.onFilter();
              },
            },
          },
          `Show more (${(wanted.length - view.rows).toLocaleString("en")} further)`,
        )
      : null;
  const content =
    wanted.length === 0
      ? el("p", {}, isFiltered ? "No node matches." : "Every node is usable.")
      : table(`${title}: ${wanted.length.toLocaleString("en")}`, ["node", "state", "mark", "failure domain", "job", "case", "reason"], rows);
  replace(parts.list, section(title, content, more));
}

const orDash = (value) => (value === "" ? none() : value);
const markName = (node) => MARKS.find((mark) => mark.key === markOf(node))?.name ?? node.state;

function describe(parts, node) {
  const domain = node.failure_domain === "" ? "no failure domain" : node.failure_domain;
  parts.selected.replaceChildren();
  append(
    parts.selected,
    nodeLink(node.name),
    ` · ${markName(node)} · ${domain} · ${node.slots} slots · `,
    node.job === null ? "no job" : jobLink(node.job),
    node.reason === null ? null : ` · ${node.reason}`,
  );
}

async function showOpenCases(parts, signal) {
  const page = await get("/api/v1/cases", { query: { open: true, limit: 100 }, signal });
  const total = page.next === null ? count(page.items.length, "open case") : `more than ${page.items.length} open cases`;
  replace(parts.open, "; ", page.items.length === 0 ? "no open case" : el("a", { href: "#/cases?open=true" }, total));
  const shown = page.items.slice(0, 5);
  const rows = shown.map((found) => ({
    key: `case ${found.id}`,
    cells: [
      caseLink(found.id),
      state(found.severity),
      found.corrected_class ?? found.class,
      found.blamed,
      jobLink(found.job),
      when(found.first_at),
      found.awaits_operator ?? found.outcome,
    ],
  }));
  const more = page.items.length > shown.length ? el("p", {}, el("a", { href: "#/cases?open=true" }, "All open cases")) : null;
  replace(
    parts.cases,
    shown.length === 0
      ? el("p", {}, "No case is open.")
      : table(
          "Open cases, newest first",
          ["case", "severity", "class", "blamed", "job", "first evidence", "decision of an operator, or outcome"],
          rows,
        ),
    more,
  );
}
