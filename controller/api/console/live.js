// Changes of the controller as they happen: one stream for all pages.

/** Wait before a refused stream is opened again, or a failed request is repeated, milliseconds. */
const RETRY_MS = 5000;

const listeners = new Set();
let report = () => {};
let source = null;
let wasOpen = false;

function send(change) {
  for (const listener of listeners) listener(change);
}

function open() {
  if (source !== null || document.hidden) return;
  const opened = new EventSource("/api/v1/watch");
  source = opened;
  opened.addEventListener("start", (event) => {
    // A stream that does not continue the one before may have missed changes.
    if (wasOpen && !JSON.parse(event.data).is_resumed) send({ kind: "gap" });
    wasOpen = true;
    report("live", null);
  });
  for (const kind of ["case", "job", "node", "nodes"]) {
    opened.addEventListener(kind, (event) => {
      const change = JSON.parse(event.data);
      report("live", change);
      send(change);
    });
  }
  opened.addEventListener("gap", () => send({ kind: "gap" }));
  opened.addEventListener("error", () => {
    report("lost", null);
    if (opened.readyState !== EventSource.CLOSED || source !== opened) return;
    source = null;
    setTimeout(open, RETRY_MS);
  });
}

/** Closes the stream of a hidden page: a browser has six connections to a host, for all of its pages. */
function onVisibility() {
  if (!document.hidden) return open();
  source?.close();
  source = null;
}

/** Opens the stream; `display` gets its state, and the newest change. */
export function start(display) {
  report = display;
  document.addEventListener("visibilitychange", onVisibility);
  open();
}

/** Calls `listener` with each change until the signal ends it. Changes of kind `gap` mean: read the lists again. */
export function subscribe(listener, signal) {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
}

/**
 * Returns a function that calls `action` soon, at most once in `ms`, and never twice at a time. A failed action is
 * repeated; where the entry of the page is gone, the page is opened again, which then states it.
 */
export function paced(action, ms, signal) {
  let timer = null;
  let isRunning = false;
  let isWanted = false;
  let last = 0;
  const run = async () => {
    timer = null;
    isRunning = true;
    isWanted = false;
    last = Date.now();
    try {
      await action();
    } catch (error) {
      if (error.status === 404) window.dispatchEvent(new HashChangeEvent("hashchange"));
      else if (error.name !== "AbortError") {
        isWanted = true;
        last = Date.now() + RETRY_MS - ms;
      }
    }
    isRunning = false;
    if (isWanted) plan();
  };
  const plan = () => {
    if (signal.aborted) return;
    isWanted = true;
    if (timer === null && !isRunning) timer = setTimeout(run, Math.max(100, last + ms - Date.now()));
  };
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  return plan;
}
