// Requests to this node. Credentials live in memory: a reload asks for them again, and no other
// page, and no disk, ever has them.

let authorization = null;

/** An error of the API: `code` and text as in docs/http-api.md; status 0 where no node answered. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? "no answer from this node");
    this.status = status;
    this.code = problem.code ?? "unreachable";
  }
}

export function logInAs(user, password) {
  const raw = new TextEncoder().encode(`${user}:${password}`);
  authorization = `Basic ${btoa(String.fromCharCode(...raw))}`;
}

export function logInWith(token) {
  authorization = `Bearer ${token}`;
}

export function logOut() {
  authorization = null;
}

export const loggedIn = () => authorization !== null;

const ANSWER_MS = 20000; // more than the node takes to give up

export async function ask(method, path, body, more = {}) {
  const headers = { "Fifo-Request": "1", ...more }; // what no form of another page can send
  if (authorization) headers.Authorization = authorization;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit", // No cookie, and no prompt of the browser: the page has its own form.
      cache: "no-store",
      signal: AbortSignal.timeout(ANSWER_MS),
    });
  } catch {
    throw new Refused(0, {});
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, found);
  return found;
}

const named = encodeURIComponent;

export const feed = (query) => ask("GET", `/console/feed?${new URLSearchParams(query)}`);
export const queueFeed = (query) => ask("GET", `/console/feed/queue?${new URLSearchParams(query)}`);

const queue = (name) => `/api/v1/queues/${named(name)}`;

export const verb = (name, what) => ask("POST", `${queue(name)}/${what}`);
export const declare = (name, spec) => ask("PUT", queue(name), spec);
export const move = (name, target, limit) => ask("POST", `${queue(name)}/move`, { target, limit });
export const groups = (name) => ask("GET", `${queue(name)}/dead-letters`);
export const redrive = (name, options) => ask("POST", `${queue(name)}/redrive`, options);
export const cancelRedrive = (name) => ask("DELETE", `${queue(name)}/redrive`);
export const find = (name, query) => ask("GET", `${queue(name)}/messages?${new URLSearchParams(query)}`);
export const message = (name, id) => ask("GET", `${queue(name)}/messages/${named(id)}`);
export const act = (name, id, action, version, options = {}) =>
  ask("POST", `${queue(name)}/messages/${named(id)}/${action}`, options, { "If-Match": `"${version}"` });
export const lead = (node) => ask("POST", "/api/v1/leadership", { node });
