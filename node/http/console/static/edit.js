// One message, elsewhere or otherwise: move it, copy it, delay it, edit it and let it begin anew.
// Each names what it does before it is done; `done` looks again at what the page shows.

import * as api from "./api.js";
import { button, buttons, close, open, say } from "./dialogs.js";
import { h } from "./dom.js";
import { span } from "./format.js";
import { queues } from "./state.js";

const DELAY_S = 60;

/** A field of a dialog: what is typed goes to `set`, and is not drawn over. */
const field = (id, label, value, set, more = {}) => h("label", { key: id, class: more.wide ? "wide" : null }, label,
  h(more.tag ?? "input", {
    id, type: more.tag ? null : more.type ?? "text", value, min: more.min, rows: more.rows, list: more.list,
    placeholder: more.placeholder, spellcheck: "false", autocomplete: "off", oninput: (event) => set(event.target.value),
  }));

const target = (plan, placeholder) => [
  field("target", "To queue", plan.target, (value) => (plan.target = value.trim()), { placeholder, list: "queue-names" }),
  h("datalist", { id: "queue-names", key: "names" }, queues().map((row) => h("option", { key: row.number, value: row.name }))),
];

const given = (plan) => (plan.target ? { target: plan.target } : {});

function need(text, value) {
  if (!value) throw new Error(text);
  return value;
}

export function moveTo(name, one, done) {
  const plan = { target: "" };
  open(`Move ${one.id}`, () => [
    h("p", { key: "what" }, `It goes to the end of another queue as it is, with its counts${one.dead_letter ? " and its death" : ""}`,
      one.place === "locked" ? ", and is taken from its holder, who is notified." : "."),
    h("div", { class: "fields", key: "fields" }, target(plan)),
    buttons(button("Move it", "primary", async () => {
      await api.act(name, one.id, "move", one.version, { target: need("to which queue?", plan.target) });
      await finished(done, `${one.id} was moved to ${plan.target}`);
    })),
  ]);
}

export function delay(name, one, done) {
  const plan = { seconds: DELAY_S };
  open(`Delay ${one.id}`, () => [
    h("p", { key: "what" }, "No consumer gets it until then. The time counts from now."),
    h("div", { class: "fields", key: "fields" },
      field("seconds", "Seconds", plan.seconds, (value) => (plan.seconds = Number(value)), { type: "number", min: 0 })),
    buttons(button("Delay it", "primary", async () => {
      await api.act(name, one.id, "delay", one.version, { delay_ms: Math.round(1000 * plan.seconds) });
      await finished(done, `${one.id} is ready in ${span(1000 * plan.seconds)}`);
    })),
  ]);
}

export function copyTo(name, one, done) {
  const plan = { target: "", ...contentOf(one) };
  open(`Copy ${one.id}`, () => [
    h("p", { key: "what" }, "A new message with an id of its own is published; this one stays as it is."),
    h("div", { class: "fields", key: "fields" }, target(plan, name), contentFields(plan)),
    buttons(button("Publish the copy", "primary", async () => {
      const found = await api.copy(name, one.id, { target: plan.target || name, ...changes(plan, one) });
      await finished(done, `${found.copy} in ${found.target} is a copy of ${one.id}`);
    })),
  ]);
}

/** Edit and resend: it begins anew under its id, where it came from or elsewhere. */
export function edit(name, one, done) {
  const plan = { target: "", ...contentOf(one) };
  const home = one.dead_letter?.source || name;
  open(`Edit and resend ${one.id}`, () => [
    h("p", { key: "what" }, "It begins anew under its id, with its counts reset: at the end of ", h("b", null, plan.target || home),
      one.place === "locked" ? ". It is taken from its holder, who is notified." : "."),
    h("div", { class: "fields", key: "fields" }, target(plan, home), contentFields(plan)),
    buttons(button("Resend it", "primary", async () => {
      await api.act(name, one.id, "resend", one.version, { ...given(plan), ...changes(plan, one) });
      await finished(done, `${one.id} begins anew in ${plan.target || home}`);
    })),
  ]);
}

async function finished(done, said) {
  close();
  say(said);
  await done();
}

// --- what is in a message ------------------------------------------------------------------------

const linesOf = (headers) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n");

/** What may be edited, as text; a body or key that is no text stays as it is. */
const contentOf = (one) => ({
  body: one.body ?? null,
  key: one.key_base64 === undefined ? one.key ?? "" : null,
  headers: linesOf(one.headers),
});

const contentFields = (plan) => [
  plan.body === null
    ? h("p", { class: "soft wide", key: "body" }, "The body is no text: it stays as it is.")
    : field("body", "Body", plan.body, (value) => (plan.body = value), { tag: "textarea", rows: 8, wide: true }),
  plan.key === null
    ? h("p", { class: "soft wide", key: "key" }, "The key is no text: it stays as it is.")
    : field("key", "Key", plan.key, (value) => (plan.key = value), { placeholder: "none" }),
  field("headers", "Headers, one a line, as name: value", plan.headers, (value) => (plan.headers = value), { tag: "textarea", rows: 3, wide: true }),
];

/** What differs from the message as it is: nothing else is sent. */
function changes(plan, one) {
  const before = contentOf(one);
  const found = {};
  if (plan.body !== before.body) found.body = plan.body;
  if (plan.key !== before.key) found.key = plan.key;
  if (plan.headers !== before.headers) found.headers = headersIn(plan.headers);
  return found;
}

function headersIn(text) {
  const found = {};
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`headers: write name: value, not ${line}`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
