// Failure mix: cases counted by class, layer or category of a published taxonomy, and parts that fail repeatedly.

import { get } from "./api.js";
import { caseLink, check, choice, count, duration, el, none, number, percent, replace, section, table, when } from "./dom.js";
import { paced, subscribe } from "./live.js";

const GROUPINGS = [
  ["class", "failure class"],
  ["layer", "layer"],
  ["failure-domain", "failure domain"],
  ["node", "node"],
  ["blamed", "blamed part"],
  ["job", "job"],
  ["week", "week"],
];
const PERIODS = [
  ["", "all that is retained"],
  ["1", "last day"],
  ["7", "last 7 days"],
  ["30", "last 30 days"],
];
/** Cases from which on a part is a repeat offender. */
const REPEATED = 2;

export async function showFailures({ page, filters, remember, signal, announce }) {
  const view = { by: filters.by ?? "class", days: filters.days ?? "", drills: filters.drills ?? "false" };
  const mix = el("div", {});
  const offenders = el("div", {});
  const taxonomies = (await get("/api/v1/taxonomies", { signal })).items;
  const refresh = async () => {
    const since = view.days === "" ? "" : new Date(Date.now() - Number(view.days) * 86_400_000).toISOString();
    const query = { since, drills: view.drills };
    const [found, blamed] = await Promise.all([
      get("/api/v1/failures", { query: { ...query, by: view.by }, signal }),
      get("/api/v1/failures", { query: { ...query, by: "blamed" }, signal }),
    ]);
    showMix(mix, found, taxonomies);
    showOffenders(offenders, blamed);
  };
  const change = (name, value) => {
    view[name] = value;
    remember({ by: view.by, days: view.days, drills: view.drills });
    reread();
  };
  const reread = paced(refresh, 100, signal);
  const groupings = [...GROUPINGS, ...taxonomies.map((taxonomy) => [taxonomy.id, `${taxonomy.short} (${taxonomy.year})`])];
  replace(
    page,
    el("h1", {}, "Failure mix"),
    el(
      "div",
      { class: "filters" },
      choice("Group by", "by", groupings, view.by, (value) => change("by", value)),
      choice("First evidence", "days", PERIODS, view.days, (value) => change("days", value)),
      check("without drills", "drills", view.drills === "false", (value) => change("drills", value ? "false" : "")),
    ),
    mix,
    offenders,
  );
  page.querySelector("select").setAttribute("data-filter", "");
  const again = paced(
    async () => {
      await refresh();
      announce("the failure mix changed");
    },
    2000,
    signal,
  );
  subscribe((found) => {
    if (found.kind === "case" || found.kind === "gap") again();
  }, signal);
  await refresh();
}

/** Filters of the case list that select a group. */
function casesOf(by, key) {
  const filter = { class: ["class", key], layer: ["layer", key], node: ["node", key] }[by];
  if (filter !== undefined) return filter;
  // The list of cases selects by the categories that verdicts record, which are those of some taxonomies only.
  return null;
}

function groupLink(by, group) {
  const filter = casesOf(by, group.key);
  if (filter === null) return el("span", {}, group.name);
  return el("a", { href: `#/cases?${new URLSearchParams([filter])}` }, group.name);
}

function showMix(mix, found, taxonomies) {
  const taxonomy = taxonomies.find((taxonomy) => taxonomy.id === found.by);
  const title =
    taxonomy === undefined
      ? (GROUPINGS.find(([key]) => key === found.by)?.[1] ?? found.by)
      : `${taxonomy.short} (${taxonomy.year}), by ${taxonomy.axis}`;
  const most = Math.max(1, ...found.groups.map((group) => group.cases));
  const rows = found.groups.map((group) => ({
    key: `group ${group.key}`,
    cells: [
      groupLink(found.by, group),
      bar(group.cases, most, found.cases),
      number(group.open),
      number(group.steps_lost),
      group.downtime_ms === 0 ? none() : duration(group.downtime_ms),
      el("span", {}, caseLink(group.newest_case), " ", when(group.newest_at)),
    ],
  }));
  const rest =
    found.without_group === 0
      ? null
      : el("p", { class: "quiet" }, `${count(found.without_group, "case")} of ${found.cases} have no group: this grouping has no place for them.`);
  replace(
    mix,
    section(
      `${count(found.cases, "case")} by ${title}`,
      rows.length === 0
        ? el("p", {}, "No case in this period.")
        : table("Most frequent first", ["group", "cases", "open", "steps repeated", "time to first step", "newest"], rows),
      rest,
    ),
  );
}

function bar(value, most, total) {
  const fill = el("span", { class: "fill" });
  fill.style.width = `${(100 * value) / most}%`;
  return el(
    "span",
    { class: "amount" },
    el("span", { class: "track", "aria-hidden": "true" }, fill),
    el("span", {}, `${value.toLocaleString("en")} · ${percent(value / total)}`),
  );
}

function showOffenders(offenders, blamed) {
  const rows = blamed.groups
    .filter((group) => group.cases >= REPEATED)
    .map((group) => ({
      key: `offender ${group.key}`,
      cells: [group.name, number(group.cases), number(group.open), el("span", {}, caseLink(group.newest_case), " ", when(group.newest_at))],
    }));
  replace(
    offenders,
    section(
      "Repeat offenders",
      rows.length === 0
        ? el("p", {}, "No part is blamed by two cases or more.")
        : table(`Parts that ${REPEATED} cases or more blame`, ["blamed part", "cases", "open", "newest"], rows),
    ),
  );
}
