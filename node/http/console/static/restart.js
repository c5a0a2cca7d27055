// May this node be restarted now? One word, and what is left to do until it is "safe".

import * as api from "./api.js";
import { button, buttons, close, open, say } from "./dialogs.js";
import { h } from "./dom.js";
import { plural, span } from "./format.js";
import { leader, state } from "./state.js";

export const RESTART = { safe: ["ok", "safe"], lead: ["warn", "hand over first"], wait: ["bad", "wait"] };

export function restartDialog(name) {
  open(`Restart ${name}`, () => {
    const node = state.feed.nodes.find((one) => one.name === name);
    const [css, word] = RESTART[node.restart.word];
    const others = state.feed.nodes.filter((one) => one.name !== name && one.role === "follower");
    const target = others.sort((a, b) => b.applied - a.applied)[0];
    const leads = leader()?.name === name;
    return [
      h("p", { class: `word ${css}`, key: "word" }, word),
      h("ul", { class: "steps", key: "steps" },
        step("others", node.restart.word !== "wait", "The others are a majority without it, and none lags",
          node.restart.why.join("; ")),
        step("leads", !leads, `${name} does not lead${node.yields_ms ? `, and lets the others lead first for ${span(node.yields_ms)}` : ""}`,
          leads ? "hand the leadership over: clients wait for milliseconds" : ""),
        step("clients", !leads && node.error === undefined && !node.clients, `${name} is drained: no client is connected`,
          node.error !== undefined ? "it does not answer" : node.clients ? `${plural(node.clients, "client connection")} left; they go by themselves once it does not lead` : "")),
      h("p", { class: "soft", key: "how" }, "Then restart its process, for example ", h("code", null, "systemctl restart fifo"),
        ", and wait until its card is without a red word before the next node. A node that has handed over leads again when it was restarted, when the leadership is handed to it, or when no other can."),
      leads && !state.feed.operate && h("p", { class: "error", key: "may" }, "Your user may not hand the leadership over (operate = true)."),
      buttons(leads && target && state.feed.operate && button(`Hand leadership to ${target.name}`, "primary", async () => {
        await api.lead(target.name);
        say(`${target.name} leads; ${name} follows`);
      })),
    ];
  });
}

const step = (key, done, text, why) => h("li", { key, class: done ? "done" : "open" },
  h("span", { class: "sr" }, done ? "done: " : "open: "), text, why && h("span", { class: "soft" }, " · ", why));
export { close };
