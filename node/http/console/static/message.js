// One message: found by its id or key, who holds it, what is in it, what can be done with it.

import * as api from "./api.js";
import { chip } from "./charts.js";
import { confirm } from "./dialogs.js";
import { h } from "./dom.js";
import { clock, forms, plural, span } from "./format.js";
import { copyTo, delay, edit, moveTo } from "./edit.js";
import { bar, holder, holderText } from "./lock.js";
import { remember, state } from "./state.js";

const ID = /^\d+\.\d+\.\d+$/;
const SHOWN = 10;
const PAGES_MAX = 20; // of a look through a queue by key: each is a bounded step of the leader

/** The field that finds a message; Enter looks. */
export function find(name) {
  const look = async (event) => {
    event.preventDefault();
    const text = document.getElementById("find").value.trim();
    remember({ wanted: text, finding: true, failed: null });
    await again(name);
  };
  return h("form", { class: "find", key: "find", role: "search", onsubmit: look },
    h("label", { class: "sr", for: "find" }, "Find a message by its id or key"),
    h("input", { id: "find", type: "search", placeholder: "Find a message by id or key, then Enter" }));
}

/** Look for a message that the page names. */
export function lookFor(name, id) {
  document.getElementById("find").value = id;
  remember({ wanted: id, finding: true, failed: null });
  again(name);
  document.getElementById("find").scrollIntoView({ block: "center" });
}

/** Look again for what was wanted: a message moves on. */
export async function again(name) {
  const { wanted } = state.view;
  if (!wanted) {
    remember({ messages: null, finding: false });
    return;
  }
  let messages = [];
  let failed = null;
  try {
    messages = ID.test(wanted) ? [await api.message(name, wanted)] : await byKey(name, wanted);
  } catch (error) {
    failed = error.message;
  }
  if (state.route.name === name) remember({ messages, failed, finding: false, foundAt: Date.now() });
}

async function byKey(name, key) {
  const messages = [];
  let after = 0;
  for (let page = 0; page < PAGES_MAX && messages.length < SHOWN; page += 1) {
    const answer = await api.find(name, { key, limit: SHOWN, after });
    messages.push(...answer.items);
    if (answer.next === null) break;
    after = answer.next;
  }
  return messages;
}

/** What was found, if anything was asked for. */
export function found(name) {
  const { wanted, messages, failed, finding } = state.view;
  if (!wanted) return null;
  return h("section", { class: "card found", key: "found", "aria-label": `Messages with ${wanted}` },
    failed && h("p", { class: "error", role: "alert" }, failed),
    finding && !messages && h("p", { class: "empty" }, "Looking …"),
    messages && messages.length === 0 && !failed && h("p", { class: "empty" }, `No message of ${name} has the id or key ${wanted}.`),
    (messages ?? []).map((one) => card(name, one)));
}

function card(name, one) {
  // The lock of the feed is a second old at most; that of the look may be older.
  const lock = state.queue?.locks?.find((l) => l.id === one.id);
  const passed = Date.now() - state.view.foundAt;
  const held = one.place === "locked" ? lock ?? { ...one, remaining_ms: Math.max(0, one.remaining_ms - passed) } : null;
  const lockMs = state.queue?.consumers?.find((c) => c.consumer === held?.consumer)?.lock_ms ?? state.queue?.queue.spec.lock_ms;
  const may = state.queue?.may.manage;
  return h("article", { class: "message", key: one.id },
    h("h3", null, h("code", null, one.id), one.key && [" · key ", h("b", null, one.key)], " ", chip(one.place === "locked" ? "lead" : "plain", one.place)),
    held && h("p", { class: "held" }, bar(held.remaining_ms, lockMs), h("span", null, "held by ", holder(held))),
    one.place === "delayed" && h("p", null, `${one.cause.replace("_", " ")}: ready in ${span(one.due_in_ms - passed)}`),
    facts(one), body(one),
    may && buttonsOf(name, one, held));
}

/** What may be done with a message; `done` looks again at what is shown. */
export function buttonsOf(name, one, held, done = () => again(name)) {
  const button = (key, text, open) => h("button", { key, type: "button", onclick: () => open(name, one, done) }, text);
  return h("p", { class: "buttons" },
    held && actions.takeBack(name, held, holderText(held), one.version),
    one.place === "delayed" && actions.simple(name, one, "retry", "Retry now", "It is ready at once.", done),
    !one.dead_letter && one.place !== "locked" && button("delay", "Delay …", delay),
    button("edit", "Edit and resend …", edit),
    button("move", "Move …", moveTo),
    button("copy", "Copy …", copyTo),
    !one.dead_letter && one.place !== "locked" && actions.simple(name, one, "terminate", "Make a dead letter", "It goes to the dead-letter queue, where there is one; else this is refused.", done),
    one.place !== "locked" && actions.simple(name, one, "delete", "Delete", "It is gone for good.", done, true));
}

export const facts = (one) => h("p", { class: "soft" },
  `published ${clock(Date.parse(one.published_at))}${one.attempt ? ` · attempt ${one.attempt}` : ""}${one.failures ? ` · ${plural(one.failures, "failure")}` : ""}${one.priority !== undefined && one.priority !== 4 ? ` · priority ${one.priority}` : ""}`,
  Object.entries(one.headers ?? {}).map(([k, v]) => h("span", { class: "header", key: k }, " · ", k, ": ", h("b", null, String(v)))));

/** The body in the form that was chosen for it. */
export function body(one) {
  const all = forms(one);
  const kinds = Object.keys(all);
  const chosen = kinds.includes(state.view.form) ? state.view.form : kinds[0];
  return h("div", { class: "body" },
    kinds.length > 1 && h("div", { class: "tabs", role: "group", "aria-label": "Form of the body" }, kinds.map((kind) => h("button", {
      key: kind, type: "button", "aria-pressed": String(kind === chosen), onclick: () => remember({ form: kind }),
    }, kind === "json" ? "JSON" : kind))),
    h("pre", { tabindex: 0, "aria-label": `Body of ${one.id} as ${chosen}` }, all[chosen]));
}

export const actions = {
  /** Take the lock of a message back from its holder. */
  takeBack: (name, lock, who, version) => h("button", {
    key: "back", type: "button", onclick: () => confirm({
      title: `Take ${lock.id} back?`,
      what: h("p", null, "Its lock, held by ", h("b", null, who), ", ends now: the message is ready for any consumer, and the holder is notified that its lock is lost. What the holder has done already stays done."),
      act: "Take it back",
      run: async () => {
        const seen = version ?? (await api.message(name, lock.id)).version;
        await api.act(name, lock.id, "unlock", seen);
        if (state.view.wanted) await again(name);
        return `${lock.id} was taken back from ${who}`;
      },
    }),
  }, "Take back …"),

  simple: (name, one, action, title, text, done, danger = false) => h("button", {
    key: action, type: "button", onclick: () => confirm({
      title: `${title}: ${one.id}?`, danger, what: h("p", null, text), act: title,
      run: async () => {
        await api.act(name, one.id, action, one.version);
        await done();
        return `${one.id}: done`;
      },
    }),
  }, `${title} …`),
};
