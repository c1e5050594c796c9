// The console of a real controller with agents, a job that trains and failures: pages change while they are open.

import { after, before, test } from "node:test";
import { strict as assert } from "node:assert";
import { clean, launch, open, picture, shows, visit } from "./browser.mjs";
import { Cluster, endAll, until } from "./sites.mjs";

const LINE = 'NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=<img src=x onerror="window.executed=1">, GPU has fallen off the bus.';
const NOTE = "<script>window.executed=1</script> looked at it";
let browser;
const cluster = new Cluster();

before(async () => {
  browser = await launch();
  await cluster.startController();
  for (const [node, domain] of [
    ["n1", "rack-a"],
    ["n2", "rack-a"],
    ["n3", "rack-b"],
  ])
    cluster.startAgent(node, domain);
  await until(
    "three nodes",
    async () => JSON.parse(await cluster.ask("status", "nodes", "--format", "json")).filter((node) => node.state === "healthy").length === 3,
  );
});
after(async () => {
  await browser?.close();
  await cluster.ask("cancel", "train").catch(() => {});
  await endAll();
  cluster.remove();
});

test("pages show a job, a failure and a note as they happen", async () => {
  const fleet = await open(browser);
  await visit(fleet, cluster.site, "fleet");
  await shows(fleet, "3 nodes, none of them", ".summary");
  await fleet.evaluate(() => {
    window.isSame = true;
  });
  const { site } = cluster;
  await cluster.ask(
    "run",
    "--detach",
    "--name",
    "train",
    "--nodes",
    "1:2",
    "--ranks-per-node",
    "1",
    "--checkpoint-dir",
    cluster.path("store"),
    "--checkpoint-every",
    "5",
    "--",
    process.env.RANKGUARD,
    "demo-rank",
    "--epochs=1000",
    "--step-ms-min=40",
    "--hidden",
    "64,32",
    `--out=${cluster.path("out")}`,
  );
  // Job: steps with loss, generation, committed checkpoints.
  const job = await open(browser);
  await visit(job, site, "jobs/train");
  await shows(job, "running", ".facts");
  await job.waitForSelector("svg[aria-label^='Loss:']");
  await shows(job, "Committed, newest first", "caption");
  await shows(job, "demo-rank", "dd code");
  const step = () => job.$$eval("svg[aria-label^='Step:']", (all) => all[0]?.getAttribute("aria-label") ?? "");
  const before = await step();
  await until("further steps", async () => (await step()) !== before);
  // A cordon appears on the map's page without a reload.
  await fleet.bringToFront();
  await cluster.run("node", "cordon", "n3", "--reason", NOTE, "--controller", cluster.address);
  await shows(fleet, NOTE, "#main tr");
  // A line of the kernel becomes a case.
  const list = await open(browser);
  await visit(list, site, "cases");
  await shows(list, "No case matches.");
  await cluster.run("inject", "kernel-line", LINE, "--state-dir", cluster.path("n2"));
  await shows(list, "gpu-fallen-off-bus", "#main tr");
  const id = await list.$eval("#main [data-key] a", (link) => link.textContent.replace("case ", ""));
  const page = await open(browser);
  await visit(page, site, `cases/${id}`);
  await shows(page, LINE, "pre");
  await shows(page, "What to do", "h2");
  await shows(page, "usual causes", "dt");
  await page.bringToFront();
  await cluster.run("cases", "comment", id, NOTE, "--controller", cluster.address);
  await shows(page, NOTE, "#main td");
  await visit(list, site, "failures?drills=true");
  await shows(list, "gpu-fallen-off-bus", "#main td");
  // The job recovers from a killed rank in a new generation.
  const { placements } = await (await fetch(new URL("/api/v1/jobs/train", site))).json();
  const { node } = placements.find((place) => place.rank === 1);
  await job.bringToFront();
  await cluster.run("inject", "rank-kill", "1", "--state-dir", cluster.path(node));
  await shows(job, "generation 2", ".chart");
  // The case of the killed rank has a plan with the options that were compared, and the job lists the lost time.
  await shows(job, "Cases of this job since its submission", "caption");
  const { items } = await (await fetch(new URL("/api/v1/cases?job=train", site))).json();
  await visit(list, site, `cases/${items[0].id}`);
  await shows(list, "✓ chosen", "#main td");
  await shows(list, "Cascade", "h2");
  for (const [name, shown] of [
    ["cluster-fleet", fleet],
    ["cluster-job", job],
    ["cluster-case", page],
    ["cluster-plan", list],
  ]) {
    await shown.bringToFront();
    await shown.waitForNetworkIdle({ idleTime: 500, concurrency: 1 });
    await picture(shown, name);
    assert.equal(await shown.evaluate(() => window.executed), undefined);
    await clean(shown);
  }
  assert.equal(await fleet.evaluate(() => window.isSame), true, "the page was loaded again");
  for (const shown of [fleet, job, list, page]) await shown.close();
});

test("a page reports a controller that is gone, and is live again after its restart", async () => {
  const page = await open(browser);
  await visit(page, cluster.site, "fleet");
  await shows(page, "live", "#live-text");
  await cluster.stopController();
  await shows(page, "not live since", "#live-text");
  const nodes = await page.$eval(".summary", (summary) => summary.textContent);
  assert.ok(nodes.startsWith("3 nodes"), nodes);
  await cluster.startController();
  await page.waitForFunction(() => document.getElementById("live-text").textContent.startsWith("live"));
  // What changes after the restart appears on the page that was open before it.
  await cluster.run("node", "uncordon", "n3", "--controller", cluster.address);
  await page.waitForFunction(() => ![...document.querySelectorAll("#main tr")].some((row) => row.textContent.includes("looked at it")));
  await page.close();
});
