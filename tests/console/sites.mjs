// Servers of the console: a real controller with agents, and the sample of controller/api/tests/console_site.rs. All
// processes end with this one, also where it is killed: a guard ends what carries a mark in its environment.

import { spawn, execFile } from "node:child_process";
import { existsSync, mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { LIMIT_MS } from "./browser.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const program = process.env.RANKGUARD;
const mark = `${process.pid}-${Date.now()}`;
const environment = { ...process.env, TEST_PROCESS_MARK: mark };
const guard = spawn("sh", ["-c", readFileSync(join(here, "../support/guard.sh"), "utf8"), "guard", `TEST_PROCESS_MARK=${mark}`], {
  stdio: ["pipe", "ignore", "ignore"],
  detached: true,
});

/** Ends all processes of this file, and waits until they have ended. */
export async function endAll() {
  const ended = new Promise((resolve) => guard.once("exit", resolve));
  guard.stdin.end();
  await ended;
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until a function returns a value. */
export async function until(what, look) {
  const end = Date.now() + LIMIT_MS;
  while (Date.now() < end) {
    const found = await look();
    if (found) return found;
    await sleep(100);
  }
  throw new Error(`waited ${LIMIT_MS} ms for ${what}`);
}

/** Controller with the API and agents, as people start them. */
export class Cluster {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "console-"));
    this.config = join(this.folder, "test.toml");
    writeFileSync(
      this.config,
      "[controller]\nhttp_listen = '127.0.0.1:0'\n[controller.policy]\ngather_ms = 200\nsettle_ms = 300\nuser_retries = 1\n",
    );
  }

  start(name, words) {
    const child = spawn(program, ["--config", this.config, ...words], { env: environment, stdio: "ignore", cwd: this.folder });
    child.ended = new Promise((resolve) => child.once("exit", resolve));
    return child;
  }

  async startController() {
    const state = join(this.folder, "controller");
    const listen = existsSync(join(state, "controller.addr")) ? readFileSync(join(state, "controller.addr"), "utf8").trim() : "127.0.0.1:0";
    this.controller = this.start("controller", ["controller", "--listen", listen, "--state-dir", state]);
    const address = (name) => until(name, () => existsSync(join(state, name)) && readFileSync(join(state, name), "utf8").trim());
    this.address = await address("controller.addr");
    this.site = `http://${await address("http.addr")}/console/`;
    await until("the API to answer", () =>
      fetch(this.site).then(
        (answer) => answer.ok,
        () => false,
      ),
    );
  }

  async stopController() {
    this.controller.kill("SIGTERM");
    await this.controller.ended;
  }

  startAgent(node, domain) {
    const state = join(this.folder, node);
    this.start(node, [
      "agent",
      "--node",
      node,
      "--slots",
      "2",
      "--kernel-log",
      "off",
      "--controller",
      this.address,
      "--state-dir",
      state,
      "--failure-domain",
      domain,
      "--injection",
    ]);
  }

  /** Runs a command, and returns its output. */
  async run(...words) {
    const { stdout } = await promisify(execFile)(program, ["--config", this.config, ...words], {
      cwd: this.folder,
      env: environment,
      timeout: LIMIT_MS,
    });
    return stdout;
  }

  /** Runs a command against the controller. */
  ask(command, ...words) {
    return this.run(command, "--controller", this.address, ...words);
  }

  path(name) {
    const path = join(this.folder, name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  remove() {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Sample cluster over the server of the API. */
export class Sample {
  async start(nodes, hostile = []) {
    this.text = "";
    this.child = spawn(
      "cargo",
      ["test", "--workspace", "--locked", "--test", "api_tests", "--", "--ignored", "--exact", "console_site::serve", "--nocapture"],
      {
        env: { ...environment, RANKGUARD_CONSOLE_NODES: String(nodes), RANKGUARD_CONSOLE_HOSTILE: JSON.stringify(hostile) },
        stdio: ["pipe", "pipe", "inherit"],
      },
    );
    this.child.stdout.on("data", (data) => {
      this.text += data;
    });
    this.site = await until("the address of the sample", () => /console: (\S+)/.exec(this.text)?.[1]);
  }

  /** Applies a command, and waits until the state has it. */
  async apply(line) {
    this.child.stdin.write(`${line}\n`);
    await until(`the sample to apply ${line}`, () => this.text.includes(`applied: ${line}\n`));
  }
}
