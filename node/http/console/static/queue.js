// One queue: its charts, who holds what and for how long yet, its consumers, what is due.

import * as api from "./api.js";
import { chip, lines, timeline } from "./charts.js";
import { confirm } from "./dialogs.js";
import { h } from "./dom.js";
import { clock, count, plural, short, span } from "./format.js";
import { bar, holder, holderText } from "./lock.js";
import { actions, find, found, lookFor } from "./message.js";
import { setAside } from "./aside.js";
import { lookAgain, remember, rowOf, state } from "./state.js";

const SAMPLE_S = 5; // between two samples of the node
const LOCKS_SHOWN = 50;
const DELAYED_SHOWN = 10;

export function queue() {
  const { queue: shown } = state;
  const { name } = state.route;
  if (!shown || shown.queue.name !== name || state.view.gone) {
    return [
      h("div", { class: "heading", key: "head" }, h("h1", null, name)),
      h("p", { class: "empty", key: "wait", role: "status" }, state.view.missing ?? `Asking for ${name} …`),
      state.view.missing && h("p", { key: "back" }, h("a", { class: "button", href: "#/queues" }, "All queues")),
    ];
  }
  const own = state.own;
  const line = (title, columns, per) => lines(title,
    columns.map(([column, css, text]) => ({ name: text, css, values: own.columns[column] ?? [] })),
    own.times, { per, now: state.feed.now_ms });
  return [
    heading(shown),
    find(name),
    found(name),
    h("section", { class: "charts", key: "charts", "aria-label": "Last fifteen minutes" },
      line("Messages", [["ready", "in", "ready"], ["locked", "out", "locked"], ["delayed", "again", "delayed"]]),
      line("Per second", [["published", "in", "published"], ["delivered", "out", "delivered"], ["acked", "ack", "acked"]], SAMPLE_S),
      line("Trouble per second", [["redelivered", "again", "redelivered"], ["dead", "dead", "dead letters"]], SAMPLE_S)),
    lockBoard(shown),
    consumers(shown),
    delayed(shown),
  ];
}

function heading({ queue: one, may }) {
  const row = rowOf(one.name);
  const figure = (label, value) => h("span", { key: label, class: "figure" }, h("b", null, value), " ", label);
  const toggle = one.paused ? ["Resume", "resume", "Deliveries go on."] : ["Pause", "pause", "No consumer gets a message until it is resumed; publishes go on, and locks stay."];
  return h("div", { class: "heading", key: "head" },
    h("h1", null, one.name),
    one.paused && chip("warn", "paused"), row?.full && chip("bad", "full"),
    h("span", { class: "figures-line" },
      figure("ready", short(one.ready)), figure("locked", short(one.locked)), figure("delayed", short(one.delayed))),
    h("span", { class: "actions" },
      may.manage && h("button", {
        key: "toggle", type: "button", onclick: () => confirm({
          title: `${toggle[0]} ${one.name}?`, what: h("p", null, toggle[2]), act: `${toggle[0]} ${one.name}`,
          run: async () => {
            await api.verb(one.name, toggle[1]);
            return `${one.name} is ${toggle[1]}d`;
          },
        }),
      }, `${toggle[0]} …`),
      may.manage && h("button", { key: "aside", type: "button", onclick: () => setAside(one.name) }, "Set messages aside …"),
      may.manage && h("button", {
        key: "purge", type: "button", class: "quiet", onclick: () => confirm({
          title: `Purge ${one.name}?`, danger: true, act: `Delete ${plural(one.ready + one.delayed, "message")} of ${one.name}`,
          what: h("p", null, "Deletes every message that is not locked, for good: there is no way back."),
          run: async () => `${plural((await api.verb(one.name, "purge")).messages, "message")} deleted`,
        }),
      }, "Purge …"),
      row?.takes_dead && h("a", { class: "button", href: `#/dead/${encodeURIComponent(one.name)}` }, "Dead letters")));
}

// --- locks ---------------------------------------------------------------------------------------

function lockBoard({ queue: one, locks, consumers: all, may, asked_ms_ago: age }) {
  const lockOf = (number) => all?.find((c) => c.consumer === number)?.lock_ms ?? one.spec.lock_ms;
  const held = (locks ?? []).map((lock) => ({ ...lock, remaining_ms: Math.max(0, lock.remaining_ms - age) }));
  const sorted = held.sort((a, b) => a.remaining_ms - b.remaining_ms || a.consumer - b.consumer || a.token - b.token);
  const shown = state.view.locks ? sorted : sorted.slice(0, LOCKS_SHOWN);
  return section("Locks", "locks",
    locks === null ? h("p", { class: "empty" }, "Your user may not see them (consume or manage).")
      : sorted.length === 0 && !pageOf("locks") ? h("p", { class: "empty" }, "No message is locked.")
      : [
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of locks" },
          h("table", { class: "locks" },
            h("thead", null, h("tr", null, ["Message", "Lock", "Held by", "Held for", "Attempt", "Renewals", ""]
              .map((title) => h("th", { key: title, scope: "col" }, title || h("span", { class: "sr" }, "Action"))))),
            h("tbody", null, shown.map((lock) => h("tr", { key: `${lock.consumer}.${lock.token}` },
              h("th", { scope: "row", "data-label": "Message" }, h("code", null, lock.id)),
              h("td", { "data-label": "Lock", class: "lock" }, bar(lock.remaining_ms, lockOf(lock.consumer))),
              h("td", { "data-label": "Held by" }, holder(lock)),
              h("td", { "data-label": "Held for", class: "num" }, span(lock.checkout_ms_ago)),
              h("td", { "data-label": "Attempt", class: "num" }, lock.attempt),
              h("td", { "data-label": "Renewals", class: "num" }, lock.renewals_max ? `${lock.renewals} of ${lock.renewals_max}` : lock.renewals),
              h("td", { class: "act" }, may.manage && actions.takeBack(one.name, lock, holderText(lock)))))))),
        sorted.length > shown.length && h("button", { type: "button", onclick: () => remember({ locks: true }) }, `Show all ${sorted.length}`),
        pager("locks", one.locked, sorted.length),
      ],
    h("p", { class: "legend" }, chip("ok", "renewed"), " more than two thirds left ", chip("warn", "not renewed"),
      " past a third without a renewal ", chip("bad", "late"), " less than a third left"));
}

// --- consumers -----------------------------------------------------------------------------------

const STEPS = ["up", "suspected", "disconnected", "gone"];
const WHY = {
  timeout: "a lock ran out while it was connected",
  timeout_while_disconnected: "a lock ran out while it was away",
  all_places_lost: "lost messages whose handlers still run take all its places",
};

function stateOf(one) {
  if (one.flags.includes("disconnected")) return ["disconnected", "its session is silent; its locks run out, then it is gone"];
  if (one.flags.includes("suspected")) return ["suspected", WHY[one.suspected_why] ?? one.suspected_why ?? ""];
  if (one.flags.includes("detached")) return ["disconnected", "between two connections"];
  if (one.status === "cancelled") return ["up", "cancelled: finishes what it holds"];
  return ["up", one.status === "waiting" ? "waits for its turn" : ""];
}

function consumers({ queue: one, consumers: all }) {
  const now = state.feed.now_ms;
  const ordered = [...all].sort((a, b) => (b.consumer === one.active) - (a.consumer === one.active) || b.priority - a.priority || a.consumer - b.consumer);
  const single = one.spec.ordering === "single_active";
  return section("Consumers", "consumers",
    ordered.length === 0 && !pageOf("consumers") ? h("p", { class: "empty" }, "No consumer.") : [
      single && h("p", { class: "soft" }, "In line: one is active, the others take over in this order."),
      h("ol", { class: `consumers ${single ? "line-up" : ""}` }, ordered.map((c) => {
        const [now_in, why] = stateOf(c);
        const last = c.changes.at(-1);
        return h("li", { key: c.consumer, class: "consumer" },
          h("div", { class: "machine", role: "img", "aria-label": `state: ${now_in}` },
            STEPS.map((step) => h("span", { key: step, class: step === now_in ? `at ${step}` : "" }, step))),
          h("div", null, holder(c), c.consumer === one.active && [" ", chip("lead", "active")], Boolean(c.durable) && [" ", chip("plain", "durable")]),
          h("div", { class: "soft" },
            last ? `${now_in} since ${clock(last.since_ms)}, for ${span(now - last.since_ms)}` : now_in,
            why && `: ${why}`,
            c.changes.length > 1 && ` (before: ${c.changes.slice(0, -1).map((x) => `${x.state} ${clock(x.since_ms)}`).join(", ")})`),
          h("div", { class: "soft num" }, `holds ${c.held} of ${c.prefetch} · lock ${span(c.lock_ms)}${c.priority ? ` · priority ${c.priority}` : ""}`));
      })),
      pager("consumers", one.consumers, ordered.length),
    ]);
}

// --- delayed -------------------------------------------------------------------------------------

const CAUSE = {
  published: "in", nack: "again", timeout: "dead", disconnect: "dead", released: "out",
  taken_back: "out", postponed: "out",
};

const causeText = (one) => one.cause.replace("_", " ");

function delayed({ queue: one, delayed: all, asked_ms_ago: age }) {
  const items = (all ?? []).map((m) => ({ ...m, due_in_ms: Math.max(0, m.due_in_ms - age) }));
  const shown = state.view.delayed ? items : items.slice(0, DELAYED_SHOWN);
  return section("Delayed", "delayed",
    all === null ? h("p", { class: "empty" }, "Your user may not see them (consume or manage).")
      : items.length === 0 && !pageOf("delayed") ? h("p", { class: "empty" }, "No message waits for its time.") : [
      timeline(items, {
        key: (m) => m.id, due: (m) => m.due_in_ms, css: (m) => CAUSE[m.cause] ?? "in",
        text: (m) => `${m.id}, ${causeText(m)}, due in ${span(m.due_in_ms)}`, begin: pageOf("delayed") ? items[0]?.due_in_ms ?? 0 : 0,
      }),
      h("p", { class: "soft" }, Object.entries(Object.groupBy(items, (m) => m.cause))
        .map(([cause, some]) => `${some.length} ${cause.replace("_", " ")}`).join(" · ")),
      h("ul", { class: "list due", "aria-label": "Delayed messages, the first to be due first" }, shown.map((m) => h("li", { key: m.id },
        h("button", { class: "quiet", type: "button", onclick: () => lookFor(one.name, m.id) },
          h("code", null, m.id), h("span", { class: "soft" }, causeText(m), m.failures ? ` · ${plural(m.failures, "failure")}` : ""),
          h("span", { class: "num" }, `in ${span(m.due_in_ms)}`))))),
      items.length > shown.length && h("button", { type: "button", onclick: () => remember({ delayed: true }) }, `Show all ${items.length}`),
      pager("delayed", one.delayed, items.length),
    ]);
}

// --- lists with pages ----------------------------------------------------------------------------

/** The cursors of the pages on the way to the one that is shown; none on the first. */
const wayTo = (what) => state.queue.pages[what] ?? [];
const pageOf = (what) => wayTo(what).length;

/** Where a list has more than a page: which part this is, and the way to the others. */
function pager(what, total, here) {
  const { page_size: size, next } = state.queue;
  const way = wayTo(what);
  if (!way.length && !next[what]) return null;
  const to = (title, where, able) => h("button", {
    key: title, type: "button", disabled: !able,
    onclick: () => {
      remember({ pages: { ...state.view.pages, [what]: where } });
      lookAgain();
    },
  }, title);
  const begins = way.length * size;
  const part = here ? `${count(begins + 1)} to ${count(begins + here)} of ${count(total)}` : `${count(total)}, none here any more`;
  return h("nav", { class: "pager", key: "pager", "aria-label": `Pages of ${what}` },
    to("First", [], way.length > 0), to("Previous", way.slice(0, -1), way.length > 0),
    h("span", { class: "num" }, part),
    to("Next", [...way, next[what]], Boolean(next[what])));
}

const section = (title, id, ...content) => h("section", { class: "card", key: id, "aria-labelledby": `h-${id}` },
  h("h2", { id: `h-${id}` }, title), content);
