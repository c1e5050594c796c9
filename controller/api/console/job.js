// Jobs, and one job: steps, loss, generations, checkpoints by tier, lost time, slow ranks.

import { all, get, resource } from "./api.js";
import { lineChart } from "./chart.js";
import { bytes, caseLink, count, duration, el, facts, jobLink, nodeLink, none, number, replace, section, state, table, text, when } from "./dom.js";
import { paced, subscribe } from "./live.js";

/** Interval at which the steps of a running job are read: the stream of changes has no steps. */
const STEPS_MS = 5000;

export async function showJobs({ page, filters, remember, signal, announce }) {
  const view = { words: filters.q ?? "", jobs: [] };
  const list = el("div", {});
  const show = () => {
    const words = view.words.toLowerCase();
    const wanted = view.jobs.filter((job) => `${job.name} ${job.state}`.toLowerCase().includes(words));
    replace(list, wanted.length === 0 ? el("p", {}, view.jobs.length === 0 ? "There is no job." : "No job matches.") : jobTable(wanted));
  };
  const refresh = async () => {
    view.jobs = await all("/api/v1/jobs", { signal });
    show();
  };
  const filter = text(
    "Filter jobs (name, state)",
    "q",
    view.words,
    (value) => {
      view.words = value;
      remember({ q: value });
      show();
    },
    { isLive: true, isFilter: true },
  );
  replace(page, el("h1", {}, "Jobs"), el("div", { class: "filters" }, filter), list);
  const again = paced(
    async () => {
      await refresh();
      announce("the list of jobs changed");
    },
    1000,
    signal,
  );
  subscribe((change) => {
    if (change.kind === "job" || change.kind === "gap") again();
  }, signal);
  await refresh();
}

function jobTable(jobs) {
  const rows = jobs.map((job) => ({
    key: `job ${job.name}`,
    cells: [
      jobLink(job.name),
      state(job.state),
      number(job.generation),
      number(job.step),
      number(job.world_size),
      job.newest_checkpoint === null ? none() : el("span", {}, `step ${job.newest_checkpoint.step}, `, when(job.newest_checkpoint.committed_at)),
      job.case === null ? none() : caseLink(job.case),
      when(job.submitted_at),
      el("span", { class: "prose" }, job.reason ?? none()),
    ],
  }));
  return table(
    `${count(jobs.length, "job")}`,
    ["job", "state", "generation", "step", "ranks", "newest checkpoint", "case", "submitted", "reason"],
    rows,
  );
}

export async function showJob({ page, name, signal, announce }) {
  const parts = { head: el("div", {}), steps: el("div", {}), rest: el("div", {}) };
  replace(page, el("p", { class: "crumbs" }, el("a", { href: "#/jobs" }, "Jobs")), el("h1", {}, "Job ", name), parts.head, parts.steps, parts.rest);
  const view = { job: null };
  const readSteps = async () => {
    const progress = await get(resource("jobs", name, "progress"), { signal });
    showSteps(parts.steps, progress.points);
  };
  const refresh = async () => {
    const path = resource("jobs", name);
    const [job, use, checkpoints, plans, cases] = await Promise.all([
      get(path, { signal }),
      get(resource("jobs", name, "efficiency"), { signal }),
      get(resource("jobs", name, "checkpoints"), { query: { limit: 50 }, signal }),
      get("/api/v1/plans", { query: { job: name, limit: 100 }, signal }),
      get("/api/v1/cases", { query: { job: name, limit: 1000 }, signal }),
    ]);
    view.job = job;
    replace(parts.head, headSection(job));
    replace(parts.rest, useOfTime(use), lostTime(job, cases), generations(plans), checkpointSection(job, checkpoints), slowRanks(job), places(job));
  };
  const again = paced(
    async () => {
      await Promise.all([refresh(), readSteps()]);
      announce(`job ${name} changed`);
    },
    2000,
    signal,
  );
  subscribe((change) => {
    const isOwn = change.kind === "job" && change.name === name;
    if (isOwn || change.kind === "case" || change.kind === "gap") again();
  }, signal);
  const steps = paced(readSteps, STEPS_MS, signal);
  const timer = setInterval(() => {
    if (!document.hidden && view.job?.ended_at === null) steps();
  }, STEPS_MS);
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  await Promise.all([refresh(), readSteps()]);
}

function headSection(job) {
  const nodes = job.nodes_min === job.nodes_max ? `${job.nodes_min}` : `${job.nodes_min} to ${job.nodes_max}`;
  return section(
    "State",
    facts([
      ["state", state(job.state)],
      ["reason", job.reason],
      job.case === null ? null : ["recovers from", caseLink(job.case)],
      ["generation", number(job.generation)],
      ["step", number(job.step)],
      job.furthest_step === job.step ? null : ["furthest step of all generations", number(job.furthest_step)],
      ["ranks", job.world_size === null ? null : `${job.world_size.toLocaleString("en")}, ${job.ranks_per_node} a node`],
      ["nodes wanted", nodes],
      ["command", el("code", {}, job.command.join(" "))],
      ["folder", job.workdir],
      ["user", job.user],
      ["restarts at most", number(job.max_restarts)],
      ["run", job.run],
      ["started from", job.resumed_from],
      ["submitted", when(job.submitted_at)],
      ["ended", when(job.ended_at)],
    ]),
  );
}

function showSteps(parts, points) {
  if (points.length === 0) {
    replace(
      parts,
      section("Steps", el("p", {}, "No rank has reported a step. Programs report them with ", el("code", {}, "rankguard.step(n, loss=loss)"), ".")),
    );
    return;
  }
  const breaks = [];
  points.forEach((point, place) => {
    if (place > 0 && point.generation !== points[place - 1].generation)
      breaks.push({ at: Date.parse(point.at), name: `generation ${point.generation}` });
  });
  const start = Date.parse(points[0].at);
  const minutes = (at) => (Date.parse(at) - start) / 60_000;
  const overTime = breaks.map((found) => ({ ...found, at: (found.at - start) / 60_000 }));
  const losses = points.filter((point) => point.loss !== null);
  const options = { xName: "minute", breaks: overTime };
  replace(
    parts,
    section(
      "Steps",
      losses.length === 0
        ? el("p", {}, "No loss is reported: programs report it with ", el("code", {}, "rankguard.step(n, loss=loss)"), ".")
        : lineChart(
            "Loss",
            losses.map((point) => [minutes(point.at), point.loss]),
            options,
          ),
      lineChart(
        "Step",
        points.map((point) => [minutes(point.at), point.step]),
        options,
      ),
      lineChart(
        "Time of a step",
        points.map((point) => [minutes(point.at), point.step_ms]),
        { ...options, unit: " ms" },
      ),
    ),
  );
}

function useOfTime(use) {
  const parts = [
    ["productive", use.productive_ms],
    ["repeated", use.repeated_ms],
    ["starting", use.starting_ms],
    ["idle", use.idle_ms],
    ["waiting", use.waiting_ms],
    ["without steps", use.unmeasured_ms],
  ];
  const share = (part) => (use.wall_ms > 0 ? `${((100 * part) / use.wall_ms).toFixed(1)} %` : none());
  const bound = use.is_complete ? "" : " or more";
  const ratio = use.ettr === null ? "no step yet" : `${(100 * use.ettr).toFixed(1)} %${bound}`;
  const rows = parts.map(([name, part]) => ({ key: name, cells: [name, duration(part), share(part)] }));
  return section(
    "Use of the wall time",
    el(
      "p",
      {},
      `Effective training time ratio (ETTR): ${ratio}. ${use.rank_hours_lost.toFixed(3)} of ${use.rank_hours.toFixed(3)} rank hours were not productive.`,
    ),
    table(`Wall time of ${duration(use.wall_ms)} by use`, ["use", "time", "share"], rows),
  );
}

function lostTime(job, cases) {
  const own = cases.items.filter((found) => Date.parse(found.opened_at) >= Date.parse(job.submitted_at));
  if (own.length === 0) return section("Lost time", el("p", {}, "No case of this job since its submission."));
  const sum = (name) => own.reduce((total, found) => total + (found[name] ?? 0), 0);
  const rows = own.slice(0, 100).map((found) => ({
    key: `case ${found.id}`,
    cells: [
      caseLink(found.id),
      state(found.state),
      found.corrected_class ?? found.class,
      found.blamed,
      number(found.generation),
      when(found.first_at),
      duration(found.downtime_ms),
      duration(found.restart_ms),
      number(found.steps_lost),
    ],
  }));
  const columns = ["case", "state", "class", "blamed", "generation", "first evidence", "to the first step", "of that restart", "steps repeated"];
  return section(
    "Lost time",
    el(
      "p",
      {},
      `${count(own.length, "case")}: ${duration(sum("downtime_ms"))} from first evidence to first step, ${sum("steps_lost").toLocaleString("en")} steps repeated. Cases without a first step yet are not in the sum.`,
    ),
    table("Cases of this job since its submission, newest first", columns, rows),
  );
}

function generations(plans) {
  const rows = plans.items.map((plan) => ({
    key: `plan ${plan.id}`,
    cells: [
      number(plan.generation),
      plan.kind,
      count(plan.node_count, "node"),
      number(plan.node_count * plan.ranks_per_node),
      when(plan.made_at),
      plan.case === null ? none() : caseLink(plan.case),
      number(plan.id),
    ],
  }));
  return section(
    "Generations",
    rows.length === 0
      ? el("p", {}, "No plan of this job is retained.")
      : table("Plans that started a generation, newest first", ["generation", "kind", "nodes", "ranks", "made", "case", "plan"], rows),
  );
}

function checkpointSection(job, checkpoints) {
  if (job.checkpoint_store === null) return section("Checkpoints", el("p", {}, "The job has no checkpoint store."));
  const rows = checkpoints.items.map((checkpoint) => [
    number(checkpoint.step),
    number(checkpoint.generation),
    number(checkpoint.world_size),
    bytes(checkpoint.bytes),
    when(checkpoint.committed_at),
    number(checkpoint.copied),
    number(checkpoint.in_parity),
    when(checkpoint.mirrored_at),
    checkpoint.stall_ms === null ? none() : duration(checkpoint.stall_ms),
  ]);
  const columns = [
    "step",
    "generation",
    "ranks",
    "size",
    "committed",
    "images in memory of other nodes",
    "images in parity",
    "mirrored",
    "longest stall",
  ];
  return section(
    "Checkpoints",
    facts([
      ["store", job.checkpoint_store],
      ["interval", `${job.checkpoint_steps} steps`],
      ["committed", number(job.checkpoints_committed)],
      ["void", number(job.checkpoints_void)],
      job.newest_void === null ? null : ["newest void", `step ${job.newest_void.step}: ${job.newest_void.reason}`],
      ["being saved", job.saving === null ? null : `step ${job.saving}`],
    ]),
    rows.length === 0
      ? el("p", {}, "None is committed yet.")
      : table(checkpoints.next === null ? "Committed, newest first" : "Newest 50 of the committed ones", columns, rows),
  );
}

function slowRanks(job) {
  const slow = job.stragglers.map((rank) => [
    number(rank.rank),
    nodeLink(rank.node),
    duration(rank.step_ms),
    duration(rank.usual_ms),
    when(rank.since),
  ]);
  const open = job.unconfirmed.map((node) => [nodeLink(node.node), state(node.state), when(node.since), el("span", { class: "prose" }, node.reason)]);
  return [
    section(
      "Slow ranks",
      slow.length === 0
        ? el("p", {}, "No rank is slower than the others.")
        : table("Slowest first", ["rank", "node", "its step", "usual step", "since"], slow),
    ),
    open.length === 0
      ? null
      : section("Nodes without confirmation that ended ranks are gone", table("Nodes", ["node", "state", "since", "reason"], open)),
  ];
}

function places(job) {
  const nodes = new Map();
  for (const place of job.placements) nodes.set(place.node, [...(nodes.get(place.node) ?? []), place.rank]);
  const rows = [...nodes].slice(0, 1000).map(([node, ranks]) => [nodeLink(node), ranks.join(", ")]);
  if (rows.length === 0) return null;
  const details = el("details", {}, el("summary", {}, `${count(nodes.size, "node")} with ${count(job.placements.length, "rank")}`));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(table("Ranks of each node", ["node", "ranks"], rows));
  });
  return section("Places", details);
}
