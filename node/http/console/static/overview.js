// The overview: is all well, and if not, where to look.

import { chip, spark } from "./charts.js";
import { h } from "./dom.js";
import { bytes, plural, rate, short, span } from "./format.js";
import { restartDialog, RESTART } from "./restart.js";
import { ageOf, queues, state } from "./state.js";

const OLD_MS = 300000; // ready for five minutes: consumers fall behind, or there are none
const SHOWN = 8;

export function overview() {
  return [
    h("h1", { class: "sr", key: "h1" }, "Overview"),
    state.feed.monitor && rates(),
    state.feed.monitor && h("section", { key: "nodes", "aria-labelledby": "nodes" },
      h("h2", { id: "nodes" }, "Nodes"),
      h("div", { class: "cards" }, state.feed.nodes.map(card))),
    h("div", { class: "two", key: "two" }, attention(), busiest()),
  ];
}

const EVENTS = [
  ["published", "in", "Published"], ["delivered", "out", "Delivered"], ["acked", "ack", "Acked"],
  ["redelivered", "again", "Redelivered"], ["dead", "dead", "Dead letters"],
];

function rates() {
  const sum = (column) => queues().reduce((total, row) => total + (row[`${column}_s`] ?? 0), 0);
  return h("section", { class: "rates", key: "rates", "aria-label": "Rates per second, all queues" },
    EVENTS.map(([column, css, title]) => h("div", { class: `rate ${css}`, key: column },
      h("span", { class: "label" }, title, " /s"),
      h("b", null, rate(Math.round(10 * sum(column)) / 10)),
      spark(state.all.columns[column] ?? [], state.all.times, state.feed.now_ms))));
}

/** A node: its role, and each figure beside what it is held against. */
function card(node) {
  const [css, word] = RESTART[node.restart.word];
  const down = node.error !== undefined;
  const figure = (label, value, alarm) => h("div", { key: label, class: alarm ? "figure bad" : "figure" },
    h("dt", null, label), h("dd", null, value));
  const low = !down && node.disk_free_bytes < node.disk_low_bytes;
  const lag = down ? 0 : Math.max(0, Math.max(...state.feed.nodes.map((n) => n.commit ?? 0)) - node.applied);
  return h("article", { class: `card node ${down ? "down" : node.role}`, key: node.name },
    h("h3", null, node.name, " ", down ? chip("bad", "down") : chip(node.role === "leader" ? "lead" : "plain", node.role),
      node.recovering && chip("warn", "recovering"),
      node.yields_ms > 0 && chip("plain", "lets others lead", `for ${span(node.yields_ms)}, or until it is restarted`)),
    down
      ? h("p", { class: "error" }, node.error, node.away_ms ? ` · for ${span(node.away_ms)}` : "")
      : h("dl", { class: "figures" },
        figure("Term", short(node.term)),
        figure("Lag", plural(lag, "entry", "entries"), lag > 1000),
        figure("Disk free", `${bytes(node.disk_free_bytes)}, needs ${bytes(node.disk_low_bytes)}`, low),
        figure("Sync p99", `${node.fsync_ms.p99.toFixed(1)} ms`, node.fsync_ms.p99 > 1000),
        figure("Elections", short(node.elections)),
        figure("Up", span(node.uptime_s * 1000))),
    h("button", {
      class: `verdict ${css}`, type: "button", onclick: () => restartDialog(node.name),
      "aria-label": `${node.name}: restart: ${word}`,
    }, h("span", null, "Restart"), h("b", null, word)));
}

/** Queues that someone should look at, the worst first, each with the reason. */
function attention() {
  const found = queues().flatMap((row) => reasons(row).map((reason) => ({ row, ...reason })));
  found.sort((a, b) => b.weight - a.weight || a.row.name.localeCompare(b.row.name));
  return h("section", { class: "card", key: "attention", "aria-labelledby": "attention" },
    h("h2", { id: "attention" }, "Needs attention"),
    found.length === 0
      ? h("p", { class: "empty good" }, "Nothing: every queue moves.")
      : h("ul", { class: "list" }, found.slice(0, SHOWN).map(({ row, css, word, text, page }) => h("li", { key: `${row.number} ${word}` },
        h("a", { href: `#/${page}/${encodeURIComponent(row.name)}` },
          chip(css, word), h("span", { class: "name" }, row.name), h("span", { class: "soft" }, text))))),
    found.length > SHOWN && h("p", { class: "soft" }, `and ${plural(found.length - SHOWN, "more", "more")}, under `,
      h("a", { href: "#/queues" }, "Queues")));
}

export function reasons(row) {
  const found = [];
  const age = ageOf(row.oldest_ready_ms);
  const waiting = row.ready + row.delayed;
  const add = (weight, css, word, text, page = "queue") => found.push({ weight, css, word, text, page });
  if (row.full) add(6, "bad", "full", "publishes are refused");
  if (row.takes_dead && waiting) add(5, "bad", "dead letters", plural(waiting, "message"), "dead");
  if (row.redrive === "paused") add(4, "warn", "redrive paused", "its target is full", "dead");
  if (row.suspected) add(3, "warn", "suspected", plural(row.suspected, "consumer"));
  if (row.disconnected) add(3, "warn", "disconnected", plural(row.disconnected, "consumer"));
  if (row.paused) add(2, "warn", "paused", `${plural(row.ready, "message")} ready`);
  else if (!row.takes_dead && row.ready && age > OLD_MS) {
    const none = row.up + row.suspected + row.disconnected === 0;
    add(none ? 2 : 1, "warn", none ? "no consumer" : "behind", `oldest for ${span(age)}`);
  }
  return found;
}

function busiest() {
  const moved = (row) => (row.published_s ?? 0) + (row.delivered_s ?? 0);
  const held = (row) => row.ready + row.locked + row.delayed;
  const top = queues().filter((row) => !row.takes_dead)
    .sort((a, b) => moved(b) - moved(a) || held(b) - held(a) || a.name.localeCompare(b.name)).slice(0, SHOWN);
  return h("section", { class: "card", key: "busiest", "aria-labelledby": "busiest" },
    h("h2", { id: "busiest" }, "Queues"),
    top.length === 0 ? h("p", { class: "empty" }, "There is no queue yet.")
      : h("ul", { class: "list" }, top.map((row) => h("li", { key: row.number },
        h("a", { href: `#/queue/${encodeURIComponent(row.name)}` },
          h("span", { class: "name" }, row.name),
          h("span", { class: "soft num" }, `${short(row.ready)} ready · ${short(row.locked)} locked`),
          h("span", { class: "num" }, `${rate(row.published_s)} in · ${rate(row.acked_s)} acked /s`))))),
    state.rows.size > SHOWN && h("p", null, h("a", { href: "#/queues" }, `All ${plural(state.rows.size, "queue")}`)));
}
