// How a lock is shown: what is left of it, and who holds it.

import { h } from "./dom.js";
import { span } from "./format.js";

/** How a lock stands: renewed, past a third without a renewal, or late. */
function standing(remaining, lockMs) {
  const left = lockMs ? remaining / lockMs : 0;
  if (left >= 2 / 3) return ["ok", "renewed"];
  return left >= 1 / 3 ? ["warn", "not renewed"] : ["bad", "late"];
}

export const bar = (remaining, lockMs) => {
  const [css, word] = standing(remaining, lockMs);
  const part = Math.max(0, Math.min(1, lockMs ? remaining / lockMs : 0));
  return h("span", { class: `bar ${css}`, title: word },
    h("i", { style: { width: `${(100 * part).toFixed(1)}%` } }),
    h("span", { class: "bar-text" }, `${span(remaining)} left · ${word}`));
};

export const holderText = (lock) => lock.client || lock.label || lock.tag || `consumer ${lock.consumer}`;

export const holder = (lock) => [
  h("b", null, holderText(lock)),
  h("span", { class: "soft" }, [lock.address, lock.user && `user ${lock.user}`, lock.label !== holderText(lock) && lock.label]
    .filter(Boolean).map((text) => ` · ${text}`).join("") || (lock.session ? "" : " · durable")),
];
