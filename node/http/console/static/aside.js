// Stop a queue, move its first messages aside, look, and go on: the way out of a poisoned queue.

import * as api from "./api.js";
import { button, buttons, close, open, say } from "./dialogs.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { state } from "./state.js";

const FIRST = 100;

export function setAside(name) {
  const plan = { target: `${name}.aside`, limit: FIRST, moved: null };
  open(`Set messages of ${name} aside`, () => {
    const { queue } = state.queue;
    const number = (id, label, value, set) => h("label", { key: id }, label, h("input", {
      id, type: "number", min: 1, value, oninput: (event) => set(Number(event.target.value)),
    }));
    if (plan.moved !== null) {
      return [
        h("p", { key: "done" }, h("b", null, `${plural(plan.moved, "message")} of ${name} moved to ${plan.target}.`),
          queue.paused ? ` ${name} is paused; ${count(queue.ready)} are left in it.` : ` ${name} delivers.`),
        buttons(queue.paused && button(`Resume ${name}`, "primary", async () => {
          await api.verb(name, "resume");
          close();
          say(`${name} delivers again; ${plural(plan.moved, "message")} set aside in ${plan.target}`);
        })),
      ];
    }
    return [
      h("p", { key: "what" }, `Pauses ${name}, so that no consumer gets a message, and moves its first ready messages to another queue, which is made if there is none. Then you resume ${name}, or not.`),
      h("div", { class: "fields", key: "fields" },
        number("aside-limit", "Messages", plan.limit, (value) => (plan.limit = value)),
        h("label", { key: "target" }, "To queue", h("input", {
          id: "aside-target", type: "text", value: plan.target, oninput: (event) => (plan.target = event.target.value.trim()),
        }))),
      buttons(button(`Pause ${name} and move ${count(plan.limit)}`, "primary", async () => {
        if (!queue.paused) await api.verb(name, "pause");
        await have(plan.target);
        plan.moved = (await api.move(name, plan.target, plan.limit)).messages;
      })),
    ];
  });
}

/** A queue of this name, as it is, or made with the defaults. */
async function have(target) {
  try {
    await api.declare(target, {});
  } catch (error) {
    if (error.code !== "queue_exists") throw error;
  }
}
