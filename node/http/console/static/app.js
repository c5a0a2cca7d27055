// The page: where it is, what its node pushes or is asked for, and what is drawn around a view.

import * as api from "./api.js";
import { audit, lookAtAudit } from "./audit.js";
import { chip } from "./charts.js";
import { dead, lookAtDead } from "./dead.js";
import { drawDialog } from "./dialogs.js";
import { h, patch } from "./dom.js";
import { bytes, clock, span } from "./format.js";
import { overview } from "./overview.js";
import { queue } from "./queue.js";
import { queues } from "./queues.js";
import { raft } from "./raft.js";
import { change, leader, onChange, onLook, remember, state, took, tookQueue } from "./state.js";

const PAGES = { overview, queues, queue, dead, raft, audit };
const TITLES = { overview: "Overview", queues: "Queues", dead: "Dead letters", raft: "Raft", audit: "Audit" };
const EVERY_MS = 1000;
const HIDDEN_MS = 10000;
const ASKS_MS = 30000;

function route() {
  const [page, name] = location.hash.replace(/^#\/?/, "").split("/");
  const known = page in PAGES ? page : "overview";
  return { page: known, name: name ? decodeURIComponent(name) : null };
}

function go() {
  const moved = route();
  const same = moved.page === state.route.page && moved.name === state.route.name;
  if (!same) change({ route: moved, queue: null, view: {}, dialog: null });
  ask();
}

// --- once a second -------------------------------------------------------------------------------

let stream = null; // the stream that is open
let timer = null;
let asksUntil = 0; // The node has no place for a stream: until then it is asked.
let lookingAt = null; // the page that is being asked for

/** Begin anew to hear what changes: on another page, after a log-in, in the foreground. A page that
 * no one sees asks now and then: a browser has few connections to a node, and each tab is one. */
function ask() {
  rest();
  if (document.hidden || Date.now() < asksUntil) poll();
  else listen();
  if (state.login === null) lookAtPage();
}

function rest() {
  clearTimeout(timer);
  stream?.abort();
  stream = null;
}

async function listen() {
  const own = new AbortController();
  stream = own;
  try {
    const { route: at, view: { pages = {} } } = state;
    await api.feedStream({ ...wanted(), ...(shows(at) && wantedOf(at.name, "from", "queue")) }, (found, event) => {
      if (stream !== own) return;
      if (event === "queue") tookView(at, pages, found);
      else {
        took(found);
        lookAtPage();
      }
    }, own.signal);
  } catch (error) {
    if (stream !== own) return;
    if (error.code === "overloaded") asksUntil = Date.now() + ASKS_MS;
    else failed(error);
    if (state.login === null) timer = setTimeout(ask, EVERY_MS);
  }
}

async function poll() {
  const own = new AbortController();
  stream = own;
  try {
    const feed = await api.feed(wanted());
    if (stream === own) took(feed);
    if (stream === own && shows(state.route)) await lookAtQueue(state.route);
  } catch (error) {
    if (stream === own) failed(error);
  }
  if (stream === own && state.login === null) timer = setTimeout(ask, document.hidden ? HIDDEN_MS : EVERY_MS);
}

/** What the page has already, and what it shows. */
function wanted() {
  const { route: at, feed } = state;
  const query = { boot: feed?.boot ?? "", since: feed?.queues.version ?? 0, after: state.all.next ?? 0 };
  return at.page === "raft" ? { ...query, roles: 1 } : query;
}

function failed(error) {
  if (error.status === 401) {
    // A wrong secret is sent once: each further time would count as another guess.
    const wrong = api.loggedIn() ? error.message : state.login ?? "";
    rest();
    api.logOut();
    change({ login: wrong, feed: null, rows: new Map() });
  } else {
    if (!(error instanceof api.Refused)) console.error(error);
    change({ lost: { why: error.message, since: state.lost?.since ?? Date.now() } });
  }
}

/** Whether a page shows one queue, which is pushed with the rest. */
const shows = (at) => Boolean(at.name) && (at.page === "queue" || at.page === "dead");

/** Ask for what is not pushed. */
async function lookAtPage() {
  const at = state.route;
  const dead = shows(at) && at.page === "dead";
  if (lookingAt === at || !(dead || at.page === "audit")) return;
  lookingAt = at;
  try {
    await (dead ? lookAtDead(at.name) : lookAtAudit(at));
  } catch (error) {
    failed(error);
  } finally {
    if (lookingAt === at) lookingAt = null;
  }
}

/** Ask for the queue that is shown, where it is not pushed. */
async function lookAtQueue(at) {
  const pages = state.view.pages ?? {};
  const boot = state.feed.boot;
  const found = await api.queueFeed({ boot, ...wantedOf(at.name, "after", "name") }).catch((error) => {
    if (error.status === 0 || error.status === 401) throw error;
    return { problem: { code: error.code, detail: error.message } };
  });
  tookView(at, pages, found);
}

/** Which queue the page shows, which pages of its lists, and what it has of it already. */
function wantedOf(name, after, named) {
  const known = state.queue?.queue.name === name && state.queue.boot === state.feed?.boot;
  const cursors = Object.entries(state.view.pages ?? {}).filter(([, way]) => way.length).map(([what, way]) => [what, way.at(-1)]);
  return { [named]: name, [after]: known ? state.own.next ?? 0 : 0, ...Object.fromEntries(cursors) };
}

function tookView(at, pages, found) {
  if (state.route !== at) return;
  const { problem } = found;
  remember({ missing: problem?.detail ?? null, gone: problem?.code === "queue_not_found" });
  if (!problem) tookQueue({ ...found, pages });
}

// --- around a view -------------------------------------------------------------------------------

function draw() {
  document.title = `${TITLES[state.route.page] ?? state.route.name} · fifo`;
  patch(document.getElementById("top"), top());
  patch(document.getElementById("banner"), banner());
  const main = document.getElementById("main");
  if (state.login !== null) patch(main, logIn());
  else if (!state.feed) patch(main, h("p", { class: "empty", key: "wait" }, "Asking this node …"));
  else patch(main, h("div", { key: `${state.route.page} ${state.route.name}` }, PAGES[state.route.page]()));
  patch(document.getElementById("foot"), foot());
  drawDialog();
}

function top() {
  const { page } = state.route;
  const own = page === "queue" ? "queues" : page;
  const led = leader();
  return [
    h("a", { class: "brand", href: "#/", key: "brand" }, "fifo"),
    h("nav", { "aria-label": "Pages", key: "nav" },
      Object.entries(TITLES).map(([key, title]) => h("a", {
        key, href: key === "overview" ? "#/" : `#/${key}`, "aria-current": key === own ? "page" : null,
      }, title))),
    h("span", { class: "who", key: "who" },
      state.feed?.monitor && (led ? chip("ok", `${led.name} leads`) : chip("bad", "no leader")),
      state.feed?.user && h("span", null, state.feed.user),
      api.loggedIn() && h("button", {
        class: "quiet", type: "button",
        onclick: () => {
          rest();
          api.logOut();
          change({ feed: null, login: "", rows: new Map() });
        },
      }, "Log out")),
  ];
}

/** One banner, for what matters most: no answer, or why publishing is refused. */
function banner() {
  if (state.login !== null) return null;
  const bad = (title, ...text) => h("div", { class: "banner bad", key: "bad" }, h("strong", null, title), " ", text);
  if (state.lost) {
    return bad(`No answer from this node for ${span(Date.now() - state.lost.since)}.`,
      `${state.lost.why}. What you see is older. `, others());
  }
  const refusal = state.feed?.refusal;
  if (refusal) {
    const since = refusal.for_ms === null ? "" :
      ` Since ${clock(state.feed.now_ms - refusal.for_ms)}, for ${span(refusal.for_ms)}.`;
    return bad("Publishing is refused:", `${why(refusal)}.${since}`);
  }
  if (state.feed?.behind) {
    return h("div", { class: "banner warn", key: "warn" }, h("strong", null, "This node lags: "),
      `${state.feed.behind}. What you see is older.`);
  }
  return null;
}

/** The same page on the other nodes. */
function others() {
  const known = (state.feed?.nodes ?? []).filter((node) => node.name !== state.feed.node);
  return known.map((node) => h("span", { key: node.name },
    h("a", { href: `${location.protocol}//${node.http}/${location.hash}` }, `Look on ${node.name}`), " "));
}

function why({ kind, nodes, needed, of, bytes: left, threshold_bytes: wanted }) {
  const names = nodes.join(" and ");
  const silent = names && `${names} ${nodes.length > 1 ? "do" : "does"} not answer`;
  if (kind === "no_majority") return `${needed} of ${of} nodes are needed, and ${silent}`;
  if (kind === "no_leader") return silent ? `no leader yet; ${silent}` : "no node leads yet";
  if (kind === "disk_low") return `the disk of ${names} is low: ${bytes(left)} free, ${bytes(wanted)} needed`;
  if (kind === "memory_high") {
    return `${names} holds ${bytes(left)} for clients that do not read, ${bytes(wanted)} at most`;
  }
  return `${kind} on ${names}`;
}

function foot() {
  if (!state.feed) return null;
  return [
    `As ${state.feed.node} knows it at ${clock(state.feed.now_ms)}. `,
    h("span", { class: "keys" }, h("kbd", null, "1"), "–", h("kbd", null, "5"), " pages, ",
      h("kbd", null, "/"), " filter, ", h("kbd", null, "Esc"), " closes"),
  ];
}

function logIn() {
  const field = (label, id, type, auto) => h("label", { key: id }, label,
    h("input", { id, type, autocomplete: auto, required: id !== "token" }));
  const send = (event) => {
    event.preventDefault();
    const of = (id) => document.getElementById(id).value;
    if (of("token")) api.logInWith(of("token").trim());
    else api.logInAs(of("user"), of("password"));
    ask();
  };
  const token = () => document.getElementById("token").value;
  const eased = () => ["user", "password"].forEach((id) => {
    document.getElementById(id).required = !token();
  });
  return h("form", { class: "card login", key: "login", onsubmit: send, oninput: eased },
    h("h1", null, "Log in"),
    field("User", "user", "text", "username"),
    field("Password", "password", "password", "current-password"),
    h("p", { class: "soft" }, "or with a token alone"),
    field("Token", "token", "password", "off"),
    state.login && h("p", { class: "error", role: "alert", key: "error" }, state.login),
    h("button", { class: "primary", type: "submit" }, "Log in"));
}

// --- keys ----------------------------------------------------------------------------------------

function pressed(event) {
  const typing = event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;
  if (typing || document.getElementById("dialog").open) return;
  const pages = ["#/", "#/queues", "#/dead", "#/raft", "#/audit"];
  if (pages[event.key - 1]) location.hash = pages[event.key - 1];
  else if (event.key === "/") {
    const filter = document.querySelector("input[type=search]");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  }
}

onChange(draw);
onLook(() => {
  lookingAt = null;
  if (shows(state.route)) ask();
  else lookAtPage();
});
addEventListener("hashchange", go);
addEventListener("keydown", pressed);
document.addEventListener("visibilitychange", () => state.login === null && ask());
setInterval(() => state.lost && change(), EVERY_MS); // "for 12 s" goes on while there is no answer
change({ route: route() });
ask();
