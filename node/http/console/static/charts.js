// Charts as SVG elements: lines over the last fifteen minutes, and a time line of what is due.
// Knows numbers and colours, no queue.

import { h } from "./dom.js";
import { clock, rate, short, span } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;
const GAP = 2.5; // A pause of so many steps is a gap in a line, not a line.
const MINUTES = 15;

/** Lines over time. `series`: [{name, css, values}], `times` in ms; `per`: seconds per value. */
export function lines(title, series, times, { per = 0, now = Date.now() } = {}) {
  const scaled = series.map((one) => ({ ...one, values: one.values.map((v) => (per ? v / per : v)) }));
  const top = nice(Math.max(1, ...scaled.flatMap((one) => one.values)));
  const begin = now - MINUTES * 60000;
  const x = (ms) => (WIDTH * (ms - begin)) / (now - begin);
  const y = (v) => HEIGHT - (HEIGHT - 4) * (v / top);
  const shownNow = (one) => (one.values.length ? one.values.at(-1) : null);
  const text = per ? rate : short;
  return h("figure", { class: "chart", key: title },
    h("figcaption", null, h("span", { class: "chart-title" }, title),
      scaled.map((one) => h("span", { class: `key ${one.css}`, key: one.name },
        h("i", { "aria-hidden": "true" }), one.name, " ", h("b", null, text(shownNow(one)))))),
    h("div", { class: "plot" },
      h("svg", {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
        "aria-label": `${title}, last ${MINUTES} minutes: ` +
          scaled.map((one) => `${one.name} now ${text(shownNow(one))}`).join(", "),
      },
        [0.5, 1].map((part) => h("line", {
          class: "grid", key: `g${part}`, x1: 0, x2: WIDTH, y1: y(top * part), y2: y(top * part),
        })),
        scaled.map((one) => h("path", {
          class: `line ${one.css}`, key: one.name, d: path(one.values, times, x, y),
        }))),
      h("span", { class: "tick top", "aria-hidden": "true" }, text(top)),
      h("span", { class: "tick left", "aria-hidden": "true" }, `−${MINUTES} min`),
      h("span", { class: "tick right", "aria-hidden": "true" }, "now")));
}

/** A line without words, for a card. */
export function spark(values, times, now) {
  const top = Math.max(1, ...values);
  const begin = now - MINUTES * 60000;
  const x = (ms) => (100 * (ms - begin)) / (now - begin);
  return h("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path", { class: "line in", d: path(values, times, x, (v) => 23 - (22 * v) / top) }));
}

function path(values, times, x, y) {
  const step = times.length > 1 ? (times.at(-1) - times[0]) / (times.length - 1) : 5000;
  const from = times.length - values.length;
  let d = "";
  values.forEach((value, at) => {
    const ms = times[from + at];
    const begins = at === 0 || ms - times[from + at - 1] > GAP * Math.max(step, 5000);
    d += `${begins ? "M" : "L"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  return d;
}

/** The next round number: 1, 2 or 5 with noughts. */
function nice(n) {
  const unit = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((f) => f * unit).find((v) => v >= n * 0.999);
}

/** What is due when: a dot for each, the nearest on the left, where `begin` is. */
export function timeline(items, { key, due, css, text, begin = 0 }) {
  const last = Math.max(begin + 1000, ...items.map(due));
  const scale = (ms) => 100 * Math.sqrt(Math.max(0, ms - begin) / (last - begin)); // The next ones need the room.
  return h("div", { class: "timeline", role: "img", "aria-label": `${items.length} delayed, the last one due in ${span(last)}` },
    h("span", { class: "axis" }),
    items.map((one) => h("i", {
      key: key(one), class: css(one), title: text(one), style: { left: `${scale(due(one))}%` },
    })),
    h("span", { class: "tick left" }, begin ? `in ${span(begin)}` : "now"),
    h("span", { class: "tick right" }, `in ${span(last)}`));
}

/** A word that colour alone does not carry. */
export const chip = (css, text, title) => h("span", { class: `chip ${css}`, title }, text);
export { clock };
