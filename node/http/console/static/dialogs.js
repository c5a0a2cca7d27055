// Questions before anything is done: what it does is named, and the button says it again.
// Owns the one dialog and the line that says how it went.

import { h, patch } from "./dom.js";
import { change, state } from "./state.js";

const box = () => document.getElementById("dialog");

/** Open a dialog whose content is a function of the state, drawn with the page. */
export function open(title, content) {
  change({ dialog: { title, content, busy: false, error: null } });
}

export function close() {
  change({ dialog: null });
}

/** Ask before an action. `what`: elements, `act`: the words of the button, `run` does it and
 * returns what to say; `danger` where something is lost for good. */
export function confirm({ title, what, act, danger = false, run }) {
  open(title, () => [
    typeof what === "function" ? what() : what,
    buttons(button(act, danger ? "danger" : "primary", async () => {
      const said = await run();
      close();
      say(said);
    })),
  ]);
}

/** A button of a dialog that does something once, and shows why it did not. */
export function button(text, css, run) {
  const dialog = state.dialog;
  return h("button", {
    key: text, class: css, type: "button", disabled: dialog?.busy ?? false,
    onclick: async () => {
      dialog.busy = true;
      dialog.error = null;
      change();
      try {
        await run();
      } catch (error) {
        dialog.error = error.message;
      }
      dialog.busy = false;
      change();
    },
  }, text);
}

export const buttons = (...own) =>
  h("p", { class: "buttons", key: "buttons" },
    h("button", { key: "cancel", type: "button", onclick: close }, "Close"), own);

export function drawDialog() {
  const element = box();
  const { dialog } = state;
  if (!dialog) {
    if (element.open) element.close();
    return;
  }
  patch(element, [
    h("h2", { id: "dialog-title", key: "title" }, dialog.title),
    h("div", { key: "content" }, dialog.content()),
    dialog.error && h("p", { class: "error", role: "alert", key: "error" }, dialog.error),
  ]);
  if (!element.open) {
    element.onclose = () => state.dialog === dialog && close();
    element.showModal();
    element.querySelector("button.primary, button.danger")?.focus();
  }
}

let timer = null;
const SAID_MS = 8000; // long enough to be read twice

/** Say how something went, for eyes and screen readers. */
export function say(text) {
  const line = document.getElementById("said");
  line.textContent = text;
  line.className = "shown";
  clearTimeout(timer);
  timer = setTimeout(() => (line.className = ""), SAID_MS);
}
