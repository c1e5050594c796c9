// Case: verdict, runbook, plan with its alternatives, timeline, evidence and reasoning.

import { get, resource } from "./api.js";
import { classOf } from "./cases.js";
import { count, duration, el, facts, jobLink, nodeLink, none, number, percent, publication, replace, section, state, table, when } from "./dom.js";
import { paced, subscribe } from "./live.js";

export async function showCase({ page, name, signal, announce }) {
  const runbook = el("div", {});
  let classShown = null;
  const refresh = async () => {
    const found = await get(resource("cases", name), { signal });
    replace(page, content(found, runbook));
    const wanted = found.corrected_class ?? found.class;
    if (wanted === classShown) return;
    classShown = wanted;
    await showRunbook(runbook, wanted, found, signal);
  };
  const again = paced(
    async () => {
      await refresh();
      announce(`case ${name} changed`);
    },
    300,
    signal,
  );
  subscribe((change) => {
    if (change.kind === "gap" || (change.kind === "case" && change.name === name)) again();
  }, signal);
  await refresh();
}

function content(found, runbook) {
  return [
    el("p", { class: "crumbs" }, el("a", { href: "#/cases" }, "Cases")),
    el("h1", {}, `Case ${found.id}: `, found.corrected_class ?? found.class),
    found.awaits_operator === null ? null : el("p", { class: "callout" }, el("b", {}, "A decision of an operator is due: "), found.awaits_operator),
    verdict(found),
    section("What to do", el("p", { class: "callout is-plain" }, el("b", {}, `${found.mitigation.action}: `), found.mitigation.advice), runbook),
    planSection(found),
    timeline(found),
    cascade(found),
    rawLines(found),
    section("Reasoning", log(found.reasoning)),
    section("Actions", found.actions.length === 0 ? el("p", {}, "No action was taken.") : log(found.actions)),
    notes(found),
  ];
}

function verdict(found) {
  const delays = found.delays;
  const since = [
    ["evidence", delays.evidence_ms],
    ["case", delays.case_ms],
    ["plan", delays.plan_ms],
    ["ranks fenced", delays.fenced_ms],
    ["launched", delays.launched_ms],
    ["first step", delays.first_step_ms],
  ].filter(([, ms]) => ms !== null);
  const others = found.alternatives.map((other) => `${other.class} (${percent(other.confidence)})`).join(", ");
  return section(
    "Verdict",
    facts([
      ["state", state(found.state)],
      ["severity", state(found.severity)],
      ["class", classOf(found)],
      ["layer", found.layer],
      ["blamed", el("strong", {}, found.blamed)],
      ["node", nodeLink(found.node)],
      ["job", found.job === null ? null : el("span", {}, jobLink(found.job), found.generation === null ? "" : `, generation ${found.generation}`)],
      ["root rank", number(found.root_rank)],
      ["confidence", percent(found.confidence)],
      ["also considered", others],
      ["first evidence", when(found.first_at)],
      ["opened", when(found.opened_at)],
      ["ended", when(found.closed_at)],
      ["after the first evidence", since.map(([what, ms]) => `${what} ${duration(ms)}`).join(", ")],
      ["steps repeated", number(found.steps_lost)],
      ["outcome", found.outcome],
      ["cleared by", found.clears],
      ["taxonomies", places(found.taxonomies)],
    ]),
  );
}

function places(taxonomies) {
  const entries = Object.entries(taxonomies);
  if (entries.length === 0) return none();
  return el(
    "ul",
    { class: "plain" },
    entries.map(([taxonomy, categories]) => el("li", {}, `${taxonomy}: ${categories.join(", ")}`)),
  );
}

function planSection(found) {
  const plan = found.plan;
  const choice = found.recovery ?? plan?.choice ?? null;
  const about =
    plan === null
      ? el("p", {}, "The case has no plan, or its plan is no longer retained.")
      : el(
          "div",
          {},
          el(
            "p",
            {},
            `Plan ${plan.id}: ${plan.kind}, generation ${plan.generation}, ${count(plan.node_count, "node")} × ${plan.ranks_per_node} ranks, made `,
            when(plan.made_at),
          ),
          el(
            "ul",
            {},
            plan.reasons.map((reason) => el("li", {}, reason)),
          ),
          el(
            "details",
            {},
            el("summary", {}, count(plan.nodes.length, "node")),
            el(
              "p",
              {},
              plan.nodes.map((node, place) => [place > 0 ? ", " : "", nodeLink(node)]),
            ),
          ),
        );
  return section("Plan and alternatives", about, choice === null ? el("p", {}, "No recovery options were compared.") : options(choice));
}

/** Cost in node-minutes: the API has node-milliseconds. */
const cost = (value) => (value / 60_000).toLocaleString("en", { maximumFractionDigits: 1 });

function options(choice) {
  const rows = choice.options.map((option) => [
    option.kind,
    option.outcome === "chosen" ? el("strong", {}, "✓ chosen") : option.outcome,
    number(option.nodes),
    duration(option.wait_ms),
    option.cost === null ? none() : cost(option.cost.total),
    option.cost === null ? none() : costParts(option.cost),
    el("span", { class: "prose" }, option.reason),
  ]);
  const inputs = choice.inputs.map((input) => [input.name, input.value, input.is_assumed ? "assumed" : "measured or configured", input.basis]);
  return [
    table(
      `Options with ${count(choice.nodes_before, "node")} before the failure; costs in node-minutes`,
      ["option", "result", "nodes", "wait", "cost", "of that", "reason"],
      rows,
    ),
    inputs.length === 0
      ? null
      : el("details", {}, el("summary", {}, "Inputs of the costs"), table("Inputs", ["input", "value", "kind", "origin"], inputs)),
  ];
}

function costParts(costs) {
  const parts = Object.entries(costs).filter(([name, value]) => name !== "total" && value > 0);
  return parts.map(([name, value]) => `${name} ${cost(value)}`).join(", ");
}

function timeline(found) {
  const entries = [
    ...found.findings.map((finding) => ({ at: finding.at, kind: finding.role, text: `${finding.entity}: ${finding.class}`, more: finding.text })),
    ...found.reasoning.map((entry) => ({ at: entry.at, kind: "reasoning", text: entry.text })),
    ...found.actions.map((entry) => ({ at: entry.at, kind: "action", text: entry.text })),
    ...found.notes.map((note) => ({ at: note.at, kind: note.kind, text: `${note.by}: ${note.text}` })),
    { at: found.opened_at, kind: "case", text: "case opened" },
    ...(found.closed_at === null ? [] : [{ at: found.closed_at, kind: "case", text: found.outcome ?? found.state }]),
  ];
  entries.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  const start = Date.parse(found.first_at);
  const rows = entries.map((entry) =>
    el(
      "li",
      {},
      el("span", { class: "at", title: entry.at }, `${Date.parse(entry.at) < start ? "−" : "+"}${duration(Math.abs(Date.parse(entry.at) - start))}`),
      el("span", { class: "tag" }, entry.kind),
      el("span", { class: "prose" }, shorten(entry.text, 400), entry.more ? el("span", { class: "quiet" }, ` ${shorten(entry.more, 160)}`) : null),
    ),
  );
  return section("Timeline", el("p", { class: "quiet" }, "From the first evidence at ", when(found.first_at)), el("ol", { class: "timeline" }, rows));
}

const shorten = (text, length) => (text.length > length ? `${text.slice(0, length)} …` : text);

function cascade(found) {
  const rows = found.findings
    .filter((finding) => finding.role !== "noise")
    .map((finding) => [
      state(finding.role),
      when(finding.at),
      finding.entity,
      nodeLink(finding.node),
      finding.class,
      percent(finding.confidence),
      el("span", { class: "prose" }, finding.why),
    ]);
  return section(
    "Cascade",
    rows.length === 0
      ? el("p", {}, "The case has no evidence with a role.")
      : table(
          "Root and consequences, in order of first cause",
          ["role", "time", "subject", "node", "class", "confidence", "reason of the role"],
          rows,
        ),
  );
}

function rawLines(found) {
  const lines = found.findings.map((finding) =>
    el(
      "details",
      { open: finding.role === "root" },
      el(
        "summary",
        {},
        state(finding.role),
        ` ${finding.source} · ${finding.evidence.node} #${finding.evidence.sequence} · `,
        when(finding.at),
        finding.is_synthetic ? " · synthetic" : "",
      ),
      el("pre", { tabindex: "0" }, finding.text),
    ),
  );
  return section("Raw lines", lines.length === 0 ? el("p", {}, "The case has no evidence.") : lines);
}

const log = (entries) =>
  el(
    "ol",
    { class: "timeline" },
    entries.map((entry) => el("li", {}, el("span", { class: "at" }, when(entry.at)), el("span", { class: "prose" }, entry.text))),
  );

function notes(found) {
  const rows = found.notes.map((note) => [
    when(note.at),
    note.by,
    note.class === null ? note.kind : `${note.kind}: ${note.class}`,
    el("span", { class: "prose" }, note.text),
  ]);
  return section(
    "Notes of operators",
    rows.length === 0
      ? el("p", {}, "No notes. ", el("code", {}, `rankguard cases comment ${found.id} TEXT`), " adds one.")
      : table("Notes, oldest first", ["time", "by", "kind", "text"], rows),
  );
}

async function showRunbook(runbook, id, found, signal) {
  let known;
  try {
    known = await get(resource("classes", id), { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    replace(runbook, el("p", {}, `The catalogue has no class ${id}.`));
    return;
  }
  const others = known.alternatives.map((other) => `${other.source}: ${other.action}`);
  replace(
    runbook,
    facts([
      ["meaning", known.meaning],
      [
        "usual causes",
        known.causes.length === 0
          ? null
          : el(
              "ol",
              {},
              known.causes.map((cause) => el("li", {}, cause)),
            ),
      ],
      ["first action", `${known.action}: ${known.action_means}`],
      ["instruction", known.advice],
      ["then", known.then.join(", ")],
      ["cleared by", known.clears],
      ["notes", known.notes],
      ["recommended by", `${known.recommended_by.join("; ")} (${known.basis})`],
      [
        "other sources recommend",
        others.length === 0
          ? null
          : el(
              "ul",
              { class: "plain" },
              others.map((other) => el("li", {}, other)),
            ),
      ],
      ["codes", known.codes.join(", ")],
      ["parent class", known.parent],
    ]),
    el(
      "details",
      {},
      el("summary", {}, "Places in published taxonomies, and sources"),
      el(
        "ul",
        {},
        known.taxonomies.map((place) => el("li", {}, publication(place.url, place.title), `: ${place.name} (${place.category})`)),
      ),
      el(
        "ul",
        {},
        known.sources.map((source) => el("li", {}, publication(source.url, source.title))),
      ),
    ),
  );
}
