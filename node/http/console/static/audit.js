// The audit log: who changed what, from where, with what outcome; the newest first.

import * as api from "./api.js";
import { chip } from "./charts.js";
import { h } from "./dom.js";
import { clock, span } from "./format.js";
import { lookAgain, remember, state } from "./state.js";

const PAGE = 50;
const EVERY_MS = 5000; // A change is seldom, and its line lies in a file.

const idle = () => Date.now() < (state.view.askAt ?? 0);

/** Ask for the newest lines, and put them before those that are shown. */
export async function lookAtAudit(at) {
  if (!state.feed?.operate || idle()) return;
  remember({ askAt: Date.now() + EVERY_MS });
  const found = await asked(at);
  if (!found) return;
  const known = state.view.lines ?? [];
  const newest = found.items;
  const meet = newest.findIndex((line) => line.id === known[0]?.id);
  // Where so many came that the two do not meet, the older ones are a button away again.
  if (meet < 0) remember({ lines: newest, next: newest.length < PAGE ? null : found.next, failed: null });
  else if (meet > 0) remember({ lines: [...newest.slice(0, meet), ...known], failed: null });
}

async function asked(at, after) {
  const { queue, user } = state.view;
  const query = { limit: PAGE, ...(queue && { queue }), ...(user && { user }), ...(after && { after }) };
  try {
    const found = await api.audit(query);
    const same = state.route === at && queue === state.view.queue && user === state.view.user;
    return same ? found : null;
  } catch (error) {
    if (error.status === 0 || error.status === 401) throw error;
    if (state.route === at) remember({ failed: error.message });
    return null;
  }
}

async function older() {
  const at = state.route;
  const found = await asked(at, state.view.next).catch((error) => remember({ failed: error.message }));
  if (!found) return;
  remember({ lines: [...state.view.lines, ...found.items], next: found.items.length < PAGE ? null : found.next });
}

export function audit() {
  if (!state.feed.operate) return h("p", { class: "empty", key: "no" }, "Your user may not read the audit log (operate = true).");
  const { lines, next, failed } = state.view;
  return [
    h("div", { class: "heading", key: "head" }, h("h1", null, "Audit"),
      filter("queue", "Only of this queue", "search"), filter("user", "Only by this user", "text")),
    failed && h("p", { class: "error", role: "alert", key: "failed" }, failed),
    lines === undefined ? !failed && h("p", { class: "empty", key: "wait" }, "Asking the leader …")
      : lines.length === 0 ? h("p", { class: "empty", key: "none" }, state.view.queue || state.view.user ? "No such change." : "Nothing was changed yet.")
      : h("div", { class: "scroll card", key: "lines", tabindex: 0, role: "region", "aria-label": "Table of changes" },
        h("table", { class: "audit" },
          h("thead", null, h("tr", null, ["When", "Change", "Details", "By", "Outcome"]
            .map((title) => h("th", { key: title, scope: "col" }, title)))),
          h("tbody", null, lines.map(row)))),
    next && h("p", { key: "more" }, h("button", { type: "button", onclick: older }, "Show older changes")),
  ];
}

const filter = (name, label, type) => h("label", { class: "filter", key: name }, h("span", { class: "sr" }, label),
  h("input", {
    id: `audit-${name}`, type, placeholder: label, value: state.view[name] ?? "", autocomplete: "off", spellcheck: "false",
    onchange: (event) => {
      remember({ [name]: event.target.value.trim(), lines: undefined, next: null, failed: null, askAt: 0 });
      lookAgain();
    },
  }));

function row(line) {
  const at = Date.parse(line.time);
  return h("tr", { key: line.id },
    h("th", { scope: "row", "data-label": "When" }, clock(at), h("span", { class: "soft" }, ` · ${span(state.feed.now_ms - at)} ago`)),
    h("td", { "data-label": "Change" }, h("b", null, line.verb.replaceAll("_", " ")), line.queue && [" ", line.queue]),
    h("td", { "data-label": "Details", class: "details" }, details(line).map((text) => h("div", { key: text }, text))),
    h("td", { "data-label": "By" }, h("b", null, line.user ?? "–"), h("span", { class: "soft" }, ` · ${line.client} · ${line.address}`)),
    h("td", { "data-label": "Outcome" }, chip(line.outcome === "refused" ? "bad" : "ok", line.outcome),
      line.reason && h("span", { class: "soft" }, ` ${line.reason}`)));
}

const empty = (value) => typeof value === "object" && value !== null && Object.keys(value).length === 0;

/** The request, and what differs after it: from what to what. Of a queue that is new, or gone, the
 * request says enough. */
function details({ what, before, after }) {
  const said = Object.entries(what).filter(([key, value]) => key !== "action" && !empty(value))
    .map(([key, value]) => `${key}: ${text(value)}`);
  if (!before || !after) return said;
  const differ = Object.keys({ ...before, ...after }).filter((name) => text(before[name]) !== text(after[name]));
  return [...said, ...differ.map((name) => `${name}: ${text(before[name])} → ${text(after[name])}`)];
}

const text = (value) => (value === undefined || value === null ? "none" : typeof value === "string" ? value : JSON.stringify(value));
