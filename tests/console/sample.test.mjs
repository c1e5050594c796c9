// The console over a sample cluster: hostile texts in every field, accessibility, phone, light and dark.

import { after, before, test } from "node:test";
import { strict as assert } from "node:assert";
import { accessible, clean, launch, open, PHONE, picture, shows, visit } from "./browser.mjs";
import { FOREIGN, HOSTILE } from "./hostile.mjs";
import { endAll, Sample } from "./sites.mjs";

let browser;
const hostile = new Sample();
const sample = new Sample();

before(async () => {
  browser = await launch();
  await hostile.start(0, HOSTILE);
  await sample.start(300);
});
after(async () => {
  await browser?.close();
  await endAll();
});

const get = async (site, path) => (await fetch(new URL(path, site))).json();

async function lists(site) {
  const read = async (name) => (await get(site, `/api/v1/${name}?limit=1000`)).items;
  return { nodes: await read("nodes"), jobs: await read("jobs"), cases: await read("cases") };
}

/** Returns true if a text of the page became code or markup. */
async function violated(page) {
  return page.evaluate((foreign) => window.executed === 1 || document.querySelectorAll(foreign).length > 0, FOREIGN);
}

test("the check finds a page that reads text as markup", async () => {
  const page = await open(browser);
  await page.goto("about:blank");
  let found = 0;
  for (const text of HOSTILE.slice(0, 9)) {
    await page.evaluate((text) => {
      document.body.innerHTML = `<p title="${text}">${text}</p>`;
    }, text);
    found += Number(await violated(page));
  }
  assert.ok(found >= 7, `${found} of 9 are found`);
  await page.close();
});

test("no text of a user, a program or a log is executed", async () => {
  const page = await open(browser);
  const { nodes, jobs, cases } = await lists(hostile.site);
  assert.deepEqual([nodes.length, jobs.length], [HOSTILE.length, HOSTILE.length]);
  assert.ok(cases.length >= HOSTILE.length / 2, `${cases.length} cases`);
  const paths = ["fleet", "cases", "jobs", ...["class", "blamed", "node", "failure-domain"].map((by) => `failures?by=${by}`)];
  for (const [list, entries] of [
    ["nodes", nodes],
    ["jobs", jobs],
  ])
    paths.push(...entries.map((entry) => `${list}/${encodeURIComponent(entry.name)}`));
  paths.push(...cases.map((found) => `cases/${found.id}`));
  paths.push(...HOSTILE.map((text) => `fleet?q=${encodeURIComponent(text)}`), ...HOSTILE.map((text) => `cases?class=${encodeURIComponent(text)}`));
  paths.push(...HOSTILE.map((text) => `classes/${encodeURIComponent(text)}`), ...HOSTILE.map((text) => encodeURIComponent(text)));
  let pages = 0;
  for (const path of paths) {
    await visit(page, hostile.site, path);
    await page.waitForFunction(() => document.querySelector("#main .page").children.length > 1);
    await page.evaluate(() => {
      for (const details of document.querySelectorAll("details")) details.open = true;
      for (const node of document.querySelectorAll("#main *")) node.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
      for (const node of document.querySelectorAll("#main a, #main input, #main button")) node.focus();
    });
    assert.equal(await violated(page), false, path);
    const links = await page.$$eval("a", (all) => all.map((link) => link.href));
    const foreign = links.filter((link) => !link.startsWith(hostile.site) && !link.startsWith("https://") && !link.startsWith("http://"));
    assert.deepEqual(foreign, [], path);
    pages += 1;
  }
  await clean(page);
  console.log(`${pages} pages with ${HOSTILE.length} texts: none executed`);
  // The texts are on the pages: they were not left out.
  for (const text of HOSTILE.slice(0, -1)) {
    await visit(page, hostile.site, `nodes/${encodeURIComponent(text)}`);
    await shows(page, text, "h1");
    await visit(page, hostile.site, `jobs/${encodeURIComponent(text)}`);
    await shows(page, text, "dd code");
  }
  await visit(page, hostile.site, `nodes/${encodeURIComponent(HOSTILE.at(-1))}`);
  await shows(page, "\\u{202e}", "h1");
  await page.close();
});

const PAGES = [
  "fleet",
  "cases",
  "cases/1",
  "jobs",
  "jobs/llm-70b",
  "failures",
  "failures?by=kokolis-hpca2025",
  "nodes/n00296",
  "nowhere",
  "cases/99999",
];

test("every page is accessible, light and dark, on a desktop and on a phone", async () => {
  for (const scheme of ["light", "dark"]) {
    for (const [device, viewport] of [
      ["desktop", undefined],
      ["phone", PHONE],
    ]) {
      const page = await open(browser, { scheme, viewport, bypass: true });
      for (const path of PAGES) {
        await visit(page, sample.site, path);
        await page.waitForFunction(() => document.querySelector("#main .page").children.length > 1);
        await page.waitForFunction(() => document.querySelector("#live-text").textContent.startsWith("live"));
        await accessible(page, `${path} ${scheme} ${device}`);
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(width <= (viewport ?? { width: 1280 }).width, `${path} is ${width} wide on a ${device}`);
        await picture(page, `${path.replace(/\W+/g, "-")}-${scheme}-${device}`);
      }
      await page.close();
    }
  }
});

test("all is reached by keyboard", async () => {
  const page = await open(browser);
  const press = async (...keys) => {
    for (const key of keys) await page.keyboard.press(key);
  };
  const at = (hash) => page.waitForFunction((hash) => location.hash.startsWith(hash), {}, hash);
  const focus = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.name);
  await visit(page, sample.site, "fleet");
  await press("g", "c");
  await at("#/cases");
  await page.waitForSelector("#main [data-key]");
  const { cases } = await lists(sample.site);
  await press("j", "j");
  assert.equal(await focus(), `case ${cases[1].id}`);
  await press("k");
  assert.equal(await focus(), `case ${cases[0].id}`);
  await press("Enter");
  await at(`#/cases/${cases[0].id}`);
  await shows(page, "Raw lines");
  await press("u");
  await at("#/cases");
  await page.waitForSelector("#main [data-filter]");
  await press("/");
  assert.equal(await focus(), "class");
  assert.ok(cases.length > 1, "the filter has something to leave out");
  await page.keyboard.type("gpu-thermal");
  await press("Enter");
  await shows(page, "1 case, newest first");
  await at("#/cases?class=gpu-thermal");
  await press("Escape", "?");
  await page.waitForSelector("#help[open]");
  await press("Escape");
  await page.waitForFunction(() => !document.getElementById("help").open);
  await press("g", "f");
  await at("#/fleet");
  await page.waitForSelector(".map");
  await page.focus(".map");
  await press("Home");
  await shows(page, "n00000", "#selected");
  await press("ArrowRight", "ArrowRight");
  await shows(page, "n00002", "#selected");
  await press("End");
  await shows(page, "n00299", "#selected");
  await press("Enter");
  await at("#/nodes/n00299");
  // Each element that the tabulator key reaches shows that it has the focus, up to the end of the page.
  await visit(page, sample.site, "cases");
  await page.waitForSelector("#main [data-key]");
  let stops = 0;
  for (;;) {
    await press("Tab");
    const outline = await page.evaluate(() =>
      document.activeElement === document.body ? null : getComputedStyle(document.activeElement).outlineStyle,
    );
    if (outline === null) break;
    assert.equal(outline, "solid", `stop ${stops}`);
    stops += 1;
  }
  assert.ok(stops > 6 + cases.length, `${stops} stops`);
  await clean(page);
  await page.close();
});

test("marks of the map differ without colour", async () => {
  const page = await open(browser);
  await visit(page, sample.site, "fleet");
  const shapes = await page.$$eval(".legend svg", (all) => all.map((picture) => [...picture.children].map((part) => part.outerHTML).join("")));
  assert.equal(shapes.length, 7);
  assert.equal(new Set(shapes).size, shapes.length);
  await page.close();
});
