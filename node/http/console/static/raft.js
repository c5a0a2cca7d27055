// Raft: how far each log is, what is on its way, and who led when and why.

import { chip } from "./charts.js";
import { h } from "./dom.js";
import { bytes, clock, count, plural, span } from "./format.js";
import { leader, state } from "./state.js";

export function raft() {
  if (!state.feed.monitor) return h("p", { class: "empty", key: "no" }, "Your user may not see the nodes (monitor = true).");
  const led = leader();
  return [
    h("div", { class: "heading", key: "head" }, h("h1", null, "Raft"),
      led && h("span", { class: "soft" }, `term ${led.term} · ${led.name} leads`)),
    h("div", { class: "scroll card", key: "logs", tabindex: 0, role: "region", "aria-label": "Table of logs" },
      h("table", { class: "logs" },
        h("thead", null, h("tr", null, ["Node", "Role", "Match", "Behind", "Applied", "Under way", "Snapshot", "Counts"]
          .map((title) => h("th", { key: title, scope: "col" }, title)))),
        h("tbody", null, state.feed.nodes.map((node) => line(node, led))))),
    h("section", { class: "card", key: "roles", "aria-labelledby": "h-roles" },
      h("h2", { id: "h-roles" }, "Changes of role"), changes()),
  ];
}

function line(node, led) {
  const peer = led?.peers.find((one) => one.name === node.name);
  const match = node === led ? node.last : peer?.match;
  const lag = peer?.lag ?? 0;
  const cell = (label, ...content) => h("td", { key: label, "data-label": label, class: "num" }, content);
  return h("tr", { key: node.name },
    h("th", { scope: "row" }, node.name),
    cell("Role", node.error !== undefined ? chip("bad", "down") : chip(node.role === "leader" ? "lead" : "plain", node.role)),
    cell("Match", match === undefined ? "–" : count(match)),
    cell("Behind", peer || node === led ? gauge(lag, led) : "–"),
    cell("Applied", node.applied === undefined ? "–" : count(node.applied)),
    cell("Under way", node === led ? bytes(node.uncommitted_bytes) : peer ? bytes(peer.in_flight_bytes) : "–"),
    cell("Snapshot", peer?.snapshot ? sending(peer.snapshot) : node.snapshot?.index ? `at ${count(node.snapshot.index)}` : "none"),
    cell("Counts", peer?.learner ? chip("plain", "learner") : node === led || peer?.counted ? "yes" : peer ? chip("warn", "recovering") : "–"));
}

const gauge = (lag) => (lag > 1000 ? chip("warn", plural(lag, "entry", "entries")) : count(lag));

function sending(one) {
  const part = one.state_bytes ? one.sent_bytes / one.state_bytes : 0;
  return h("span", { class: "bar ok" }, h("i", { style: { width: `${(100 * part).toFixed(0)}%` } }),
    h("span", { class: "bar-text" }, `sending ${bytes(one.sent_bytes)} of ${bytes(one.state_bytes)}`));
}

const SHOWN = 100;

function changes() {
  const all = state.feed.nodes.flatMap((node) => (node.roles ?? []).map((change) => ({ ...change, node: node.name })));
  all.sort((a, b) => b.at_ms - a.at_ms);
  if (all.length === 0) return h("p", { class: "empty" }, "None since the nodes began.");
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of changes" }, h("table", { class: "roles" },
    h("thead", null, h("tr", null, ["When", "Node", "Became", "Term", "Because"].map((title) => h("th", { key: title, scope: "col" }, title)))),
    h("tbody", null, all.slice(0, SHOWN).map((one) => h("tr", { key: `${one.node} ${one.at_ms} ${one.role} ${one.term}` },
      h("td", { "data-label": "When" }, clock(one.at_ms), h("span", { class: "soft" }, ` · ${span(state.feed.now_ms - one.at_ms)} ago`)),
      h("td", { "data-label": "Node" }, one.node),
      h("td", { "data-label": "Became" }, chip(one.role === "leader" ? "lead" : "plain", one.role)),
      h("td", { "data-label": "Term", class: "num" }, one.term),
      h("td", { "data-label": "Because" }, one.cause))))));
}
