// Browser: start, pages that record what a policy refuses and what executes, pictures, accessibility.

import { readFileSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { strict as assert } from "node:assert";

const modules = createRequire(join(process.env.CONSOLE_MODULES, "package.json"));
const puppeteer = modules("puppeteer-core");
const AXE = readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");

/** Longest wait for anything, milliseconds. */
export const LIMIT_MS = 120_000;
export const DESKTOP = { width: 1280, height: 900 };
export const PHONE = { width: 360, height: 740, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

export async function launch() {
  return puppeteer.launch({
    executablePath: process.env.CHROMIUM,
    protocolTimeout: LIMIT_MS,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"],
  });
}

/** Opens a page that records errors, refusals of the policy, dialogs, requests to other hosts, and code that executes. */
export async function open(browser, { viewport = DESKTOP, scheme = "light", bypass = false } = {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  page.found = [];
  page.on("pageerror", (error) => page.found.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    page.found.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    const { protocol, hostname } = new URL(request.url());
    if (protocol !== "data:" && protocol !== "about:" && hostname !== "127.0.0.1") page.found.push(`request: ${request.url()}`);
  });
  await page.setViewport(viewport);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  if (bypass) await page.setBypassCSP(true);
  await page.evaluateOnNewDocument(() => {
    window.refused = [];
    window.longTasks = [];
    document.addEventListener("securitypolicyviolation", (event) => window.refused.push(`${event.violatedDirective} ${event.blockedURI}`));
    new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({
      type: "longtask",
      buffered: true,
    });
  });
  return page;
}

/** Goes to a page of the console and waits until its heading is there. */
export async function visit(page, site, path) {
  await page.bringToFront();
  const isOpen = page.url().startsWith(site);
  if (isOpen) {
    await page.evaluate((path) => {
      document.querySelector("#main h1")?.remove();
      location.hash = path;
    }, `#/${path}`);
  } else {
    await page.goto(`${site}#/${path}`, { waitUntil: "domcontentloaded" });
  }
  await page.waitForSelector("#main h1");
  // One connection is the stream of changes.
  await page.waitForNetworkIdle({ idleTime: 150, concurrency: 1 });
  await page.waitForFunction(() => !document.querySelector("#main .summary")?.textContent.includes("reading further"));
}

/** Waits until the page shows a text. */
export async function shows(page, text, where = "#main") {
  await page.bringToFront();
  const has = (where, text) => [...document.querySelectorAll(where)].some((node) => node.textContent.includes(text));
  try {
    await page.waitForFunction(has, {}, where, text);
  } catch (error) {
    const found = await page.$eval("body", (body) => body.innerText);
    throw new Error(`${where} does not show ${JSON.stringify(text)} at ${page.url()}: ${found.slice(0, 3000)}`, { cause: error });
  }
}

/** Checks that nothing went wrong on a page since it was opened. */
export async function clean(page) {
  const refused = await page.evaluate(() => window.refused);
  assert.deepEqual([...page.found, ...refused], [], page.url());
}

/** Checks the accessibility of the page that is shown; the page must have been opened with `bypass`. */
export async function accessible(page, what) {
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => {
    const result = await window.axe.run(document, { resultTypes: ["violations"] });
    return result.violations.map(({ id, impact, nodes }) => ({
      id,
      impact,
      nodes: nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)} ${node.failureSummary}`),
    }));
  });
  assert.deepEqual(violations, [], what);
}

/** Takes a picture if a folder for pictures is given. */
export async function picture(page, name) {
  const folder = process.env.CONSOLE_PICTURES;
  if (folder === undefined) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), fullPage: name.startsWith("cluster") });
}
