// Node: agent, cordon, conditions, links, devices that cases name, and its cases.

import { get, resource } from "./api.js";
import { classOf } from "./cases.js";
import { caseLink, duration, el, facts, jobLink, number, replace, section, state, table, when } from "./dom.js";
import { paced, subscribe } from "./live.js";

export async function showNode({ page, name, signal, announce }) {
  const refresh = async () => {
    const [node, cases] = await Promise.all([
      get(resource("nodes", name), { signal }),
      get("/api/v1/cases", { query: { node: name, limit: 50 }, signal }),
    ]);
    replace(page, content(node, cases));
  };
  const again = paced(
    async () => {
      await refresh();
      announce(`node ${name} changed`);
    },
    500,
    signal,
  );
  subscribe((change) => {
    const isOwn = change.kind === "node" && change.name === name;
    if (isOwn || change.kind === "case" || change.kind === "gap" || change.kind === "nodes") again();
  }, signal);
  await refresh();
}

function content(node, cases) {
  const cordon = node.cordon;
  const list = (title, columns, rows, empty) => section(title, rows.length === 0 ? el("p", {}, empty) : table(title, columns, rows));
  return [
    el("p", { class: "crumbs" }, el("a", { href: "#/fleet" }, "Fleet")),
    el("h1", {}, "Node ", node.name),
    section(
      "State",
      facts([
        ["state", state(node.state)],
        ["takes new ranks", node.is_schedulable ? "yes" : "no"],
        ["reason", node.reason],
        ["job", jobLink(node.job)],
        ["slots", number(node.slots)],
        ["failure domain", node.failure_domain === "" ? "not configured (agent.failure_domain)" : node.failure_domain],
        node.faulty_in_use === null ? null : ["faulty, in use", caseLink(node.faulty_in_use)],
        ["host", node.host],
        ["address of the agent", node.address],
        ["boot id", node.boot_id],
        ["joined", when(node.joined_at)],
        node.lost_since === null ? null : ["lost since", when(node.lost_since)],
        node.session_ended_at === null ? null : ["session ended", when(node.session_ended_at)],
        ["lease", node.lease_ms === 0 ? "none" : duration(node.lease_ms)],
        ["refused evidence", number(node.refused_evidence)],
      ]),
    ),
    cordon === null
      ? null
      : section(
          "Cordon",
          facts([
            ["since", when(cordon.since)],
            ["reason", cordon.reason],
            ["case", cordon.case === null ? "cordon by an operator" : caseLink(cordon.case)],
            ["draining", cordon.is_draining ? "yes: the job moves away after its next checkpoint" : "no"],
          ]),
        ),
    list(
      "Devices that cases name",
      ["kind", "address", "open case", "cases"],
      node.devices.map((device) => [
        device.kind,
        device.address,
        device.has_open_case ? "yes" : "no",
        device.cases.slice(0, 20).map((id) => [caseLink(id), " "]),
      ]),
      "No case names a device of this node. Agents report no inventory.",
    ),
    list(
      "Conditions that last",
      ["since", "place", "class", "text"],
      node.conditions.map((condition) => [when(condition.since), condition.place, condition.class, el("span", { class: "prose" }, condition.text)]),
      "None.",
    ),
    list(
      "Links that are down",
      ["link", "since"],
      node.links_down.map((link) => [link.link, when(link.since)]),
      "None is reported as down.",
    ),
    list(
      cases.next === null ? "Cases" : "Newest 50 cases",
      ["case", "state", "class", "blamed", "job", "first evidence"],
      cases.items.map((found) => ({
        key: `case ${found.id}`,
        cells: [caseLink(found.id), state(found.state), classOf(found), found.blamed, jobLink(found.job), when(found.first_at)],
      })),
      "No case has evidence of this node.",
    ),
  ];
}
