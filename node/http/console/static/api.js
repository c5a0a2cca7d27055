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
const SILENCE_MS = 6000; // of a stream that says something once a second, but for a node under load

const headersOf = (more = {}) => ({
  "Fifo-Request": "1", // what no form of another page can send
  ...(authorization ? { Authorization: authorization } : {}),
  ...more,
});

export async function ask(method, path, body, more = {}) {
  const headers = headersOf(more);
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

/** Hear what the node pushes, until `signal` ends it: `took` gets each answer, and the name of its
 * event, which is "message" where it has none. Throws Refused, with status 0 where the node is
 * silent. Not an EventSource: that sends no credentials of ours. */
export async function follow(path, took, signal) {
  const silent = new AbortController();
  let timer = setTimeout(() => silent.abort(), ANSWER_MS);
  try {
    const answer = await fetch(path, {
      headers: headersOf(), credentials: "omit", cache: "no-store",
      signal: AbortSignal.any([signal, silent.signal]),
    });
    if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Refused(0, {});
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENCE_MS);
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const data = JSON.parse(event.slice(event.indexOf("data: ") + 6));
        const name = event.startsWith("event: ") ? event.slice(7, event.indexOf("\n")) : "message";
        if (name === "problem") throw new Refused(data.status, data);
        took(data, name);
      }
    }
  } catch (error) {
    if (signal.aborted) return;
    throw error instanceof Refused ? error : new Refused(0, {});
  } finally {
    clearTimeout(timer);
  }
}

const named = encodeURIComponent;

export const feed = (query) => ask("GET", `/console/feed?${new URLSearchParams(query)}`);
export const feedStream = (query, took, signal) =>
  follow(`/console/feed/stream?${new URLSearchParams(query)}`, took, signal);
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
export const copy = (name, id, options) => ask("POST", `${queue(name)}/messages/${named(id)}/copy`, options);
export const act = (name, id, action, version, options = {}) =>
  ask("POST", `${queue(name)}/messages/${named(id)}/${action}`, options, { "If-Match": `"${version}"` });
export const audit = (query) => ask("GET", `/api/v1/audit?${new URLSearchParams(query)}`);
export const lead = (node) => ask("POST", "/api/v1/leadership", { node });
