// What the page knows, and the one way to change it. Knows no element.

export const state = {
  route: { page: "overview", name: null },
  feed: null, // the last answer about the cluster
  rows: new Map(), // queues by number, as objects
  all: { times: [], columns: {} }, // samples of all queues together
  queue: null, // the last answer about the queue that is shown
  own: { times: [], columns: {} }, // its samples
  lost: null, // why this node gave no answer, and since when
  login: null, // an error where a log-in is asked for
  dialog: null,
  view: {}, // what a page remembers while it is shown
};

const SAMPLES_MAX = 180; // as the node keeps them

let drawn = () => {};
let asked = false;

let look = () => {};

export const onChange = (draw) => (drawn = draw);

/** Ask for the shown page at once, not only with the next second; `onLook` says how. */
export const lookAgain = () => look();
export const onLook = (ask) => (look = ask);

/** Change the state, and draw the page once, soon. */
export function change(fields = {}) {
  Object.assign(state, fields);
  if (asked) return;
  asked = true;
  // Not only by frames: a page in the background has none, and tests look there too.
  setTimeout(() => {
    asked = false;
    drawn();
  }, 0);
}

export function remember(fields) {
  Object.assign(state.view, fields);
  change();
}

/** Take an answer of the feed: rows that changed, samples that are new. */
export function took(feed) {
  const fresh = !state.feed || state.feed.boot !== feed.boot;
  if (fresh || feed.queues.whole) state.rows = new Map();
  for (const number of feed.queues.gone) state.rows.delete(number);
  for (const values of feed.queues.rows) {
    const row = Object.fromEntries(feed.row.map((name, at) => [name, values[at]]));
    state.rows.set(row.number, row);
  }
  if (feed.history) state.all = joined(fresh ? null : state.all, feed.history);
  change({ feed, lost: null, login: null });
}

export function tookQueue(found) {
  const same = state.queue && state.queue.queue.name === found.queue.name && state.queue.boot === found.boot;
  change({ queue: found, own: joined(same ? state.own : null, found.history) });
}

/** Samples with those that came after them. */
function joined(known, more) {
  if (!known || known.next !== more.first || !known.times.length) {
    return { times: more.times_ms, columns: more.columns, next: more.next };
  }
  const columns = {};
  for (const [name, values] of Object.entries(more.columns)) {
    columns[name] = [...(known.columns[name] ?? []), ...values].slice(-SAMPLES_MAX);
  }
  return { times: [...known.times, ...more.times_ms].slice(-SAMPLES_MAX), columns, next: more.next };
}

/** The age of something with a cluster time, now. */
export const ageOf = (ms) => (ms === null ? null : Math.max(0, state.feed.cluster_ms - ms));

export const queues = () => [...state.rows.values()];

export const rowOf = (name) => queues().find((row) => row.name === name);

/** The leader by its own word, of the newest term. */
export function leader() {
  const led = (state.feed?.nodes ?? []).filter((node) => node.role === "leader");
  return led.sort((a, b) => b.term - a.term)[0] ?? null;
}
