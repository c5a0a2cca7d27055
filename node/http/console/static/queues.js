// The table of all queues: sorted, filtered, good at a thousand.

import { chip } from "./charts.js";
import { h } from "./dom.js";
import { plural, rate, short, span } from "./format.js";
import { forget, same, save, saved } from "./saved.js";
import { ageOf, change, queues as all, remember, state } from "./state.js";

const SHOWN = 100; // more rows are a button away: a screen shows thirty
const COLUMNS = [
  ["name", "Queue", (row) => row.name],
  ["ready", "Ready", (row) => row.ready],
  ["locked", "Locked", (row) => row.locked],
  ["delayed", "Delayed", (row) => row.delayed],
  ["oldest", "Oldest", (row) => ageOf(row.oldest_ready_ms) ?? -1],
  ["in", "In /s", (row) => row.published_s ?? 0],
  ["out", "Out /s", (row) => row.delivered_s ?? 0],
  ["acked", "Acked /s", (row) => row.acked_s ?? 0],
  ["consumers", "Consumers", (row) => row.up + row.suspected + row.disconnected],
  ["state", "State", (row) => marks(row).length],
];
const FILTERS = {
  all: ["All", () => true],
  waiting: ["With messages", (row) => row.ready + row.locked + row.delayed > 0],
  trouble: ["In trouble", (row) => marks(row).some(([css]) => css !== "plain") || row.suspected || row.disconnected],
  paused: ["Paused", (row) => row.paused],
  dead: ["Dead letters", (row) => row.takes_dead],
};

export function queues() {
  const { text = "", only = "all", by = "name", down = false, whole = false } = state.view;
  const wanted = text.toLowerCase();
  const found = all().filter((row) => FILTERS[only][1](row) && row.name.toLowerCase().includes(wanted));
  const value = COLUMNS.find(([key]) => key === by)[2];
  const order = (a, b) => (typeof value(a) === "string" ? value(a).localeCompare(value(b), "en", { numeric: true }) : value(a) - value(b));
  found.sort((a, b) => (down ? -1 : 1) * order(a, b) || a.name.localeCompare(b.name));
  const shown = whole ? found : found.slice(0, SHOWN);
  return [
    h("div", { class: "heading", key: "head" },
      h("h1", null, "Queues"),
      h("label", { class: "filter" }, h("span", { class: "sr" }, "Filter by name"),
        h("input", {
          key: "filter", type: "search", placeholder: "Filter by name", value: text,
          oninput: (event) => remember({ text: event.target.value }),
        })),
      h("label", { class: "filter" }, h("span", { class: "sr" }, "Show"),
        h("select", { key: "only", value: only, onchange: (event) => remember({ only: event.target.value }) },
          Object.entries(FILTERS).map(([key, [title]]) => h("option", { key, value: key }, title)))),
      h("span", { class: "soft" }, found.length === state.rows.size
        ? plural(found.length, "queue") : `${found.length} of ${plural(state.rows.size, "queue")}`)),
    filters({ text, only, by, down }),
    h("div", { class: "scroll", key: "table", tabindex: 0, role: "region", "aria-label": "Table of queues" },
      h("table", { class: "queues" },
        h("thead", null, h("tr", null, COLUMNS.map(([key, title]) => h("th", {
          key, scope: "col", class: key, "aria-sort": key === by ? (down ? "descending" : "ascending") : null,
        }, h("button", {
          type: "button", onclick: () => remember({ by: key, down: key === by ? !down : key !== "name" }),
        }, title, h("i", { "aria-hidden": "true" }, key === by ? (down ? " ▾" : " ▴") : "")))))),
        h("tbody", null, shown.map(line)))),
    found.length === 0 && h("p", { class: "empty", key: "none" }, state.rows.size ? "No queue fits." : "There is no queue yet."),
    found.length > shown.length && h("p", { key: "more" }, h("button", {
      type: "button", onclick: () => remember({ whole: true }),
    }, `Show all ${found.length}`)),
  ];
}

const ALL = { text: "", only: "all", by: "name", down: false };

/** The saved filters, and the way to save this one: kept by the browser, for the next time. */
function filters(now) {
  const known = saved().filter((one) => FILTERS[one.only] && COLUMNS.some(([key]) => key === one.by));
  const fresh = !same(now, ALL) && !known.some((one) => same(one, now));
  if (!known.length && !fresh) return null;
  return h("ul", { class: "filters", key: "filters", "aria-label": "Saved filters" },
    known.map((one) => h("li", { key: nameOf(one) },
      h("button", { type: "button", "aria-pressed": String(same(one, now)), onclick: () => remember({ ...(same(one, now) ? ALL : one), whole: false }) }, nameOf(one)),
      h("button", {
        class: "quiet", type: "button", "aria-label": `Forget the filter ${nameOf(one)}`,
        onclick: () => {
          forget(one);
          change();
        },
      }, "×"))),
    fresh && h("li", { key: "save" }, h("button", {
      class: "quiet", type: "button", onclick: () => {
        save(now);
        change();
      },
    }, `Save filter ${nameOf(now)}`)));
}

/** What a filter does, in words. */
function nameOf({ text, only, by, down }) {
  const column = COLUMNS.find(([key]) => key === by)[1];
  return [text && `“${text}”`, only !== "all" && FILTERS[only][0], (by !== "name" || down) && `by ${column}${down ? " ▾" : " ▴"}`]
    .filter(Boolean).join(" · ");
}

function line(row) {
  const cell = (key, text) => h("td", { key, class: `${key} num ${text === "0" || text === "–" ? "zero" : ""}`, "data-label": COLUMNS.find(([c]) => c === key)[1] }, text);
  const age = ageOf(row.oldest_ready_ms);
  return h("tr", { key: row.number },
    h("th", { scope: "row", class: "name" },
      h("a", { href: `#/${row.takes_dead ? "dead" : "queue"}/${encodeURIComponent(row.name)}` }, row.name)),
    cell("ready", short(row.ready)),
    cell("locked", short(row.locked)),
    cell("delayed", short(row.delayed)),
    cell("oldest", age === null ? "–" : span(age)),
    cell("in", rate(row.published_s)),
    cell("out", rate(row.delivered_s)),
    cell("acked", rate(row.acked_s)),
    cell("consumers", consumers(row)),
    h("td", { key: "state", class: "state" }, marks(row).map(([css, text]) => h("span", { key: text }, chip(css, text), " "))));
}

/** Consumers by state; those that need a look have a word, not only a colour. */
function consumers(row) {
  return [
    h("span", { key: "up" }, row.up),
    row.suspected > 0 && h("span", { key: "s" }, " ", chip("warn", `${row.suspected} suspected`)),
    row.disconnected > 0 && h("span", { key: "d" }, " ", chip("bad", `${row.disconnected} disconnected`)),
  ];
}

export function marks(row) {
  return [
    row.paused && ["warn", "paused"],
    row.full && ["bad", "full"],
    row.takes_dead && ["plain", "dead letters"],
    (row.redrive === "running" || row.redrive === "paused") && ["lead", `redrive ${row.redrive}`],
  ].filter(Boolean);
}
