// Requests to the HTTP API of this controller.

/** Error of a request: a problem document (RFC 9457), or the network. */
export class ApiProblem extends Error {
  constructor(title, detail, status, hint) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.hint = hint ?? null;
  }
}

/** Returns the path of a resource with its query; absent and empty parameters are left out. */
export function uri(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const parameters = new URLSearchParams(given).toString();
  return parameters ? `${path}?${parameters}` : path;
}

/** Returns a document. */
export async function get(path, { query, signal } = {}) {
  let response;
  try {
    response = await fetch(uri(path, query), { signal, headers: { accept: "application/json" }, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiProblem("the controller does not answer", "", 0, "the page shows the newest content that it has");
  }
  const document = await response.json().catch(() => null);
  if (response.ok && document !== null) return document;
  const title = document?.title ?? `the controller answered ${response.status}`;
  throw new ApiProblem(title, document?.detail ?? "", response.status, document?.hint);
}

/** Returns all entries of a list; `onPage` gets those so far after each page. */
export async function all(path, { query, signal, onPage } = {}) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(path, { query: { ...query, limit: 1000, cursor }, signal });
    items.push(...page.items);
    cursor = page.next;
    onPage?.(items, cursor !== null);
  } while (cursor !== null);
  return items;
}

/** Returns the path of a resource with a name. */
export const resource = (list, name, ...rest) => ["/api/v1", list, encodeURIComponent(name), ...rest].join("/");
