// Filters that someone has saved, in this browser: words and columns, no secret. Knows no queue.

const KEY = "fifo.filters"; // in the local storage of the node's address
const MOST = 12; // a line or two above the table

let known = null;

/** The saved filters; none where the browser keeps nothing, or something else is there. */
export function saved() {
  if (known === null) {
    try {
      known = JSON.parse(localStorage.getItem(KEY) ?? "[]").filter(sound).slice(0, MOST);
    } catch {
      known = [];
    }
  }
  return known;
}

const sound = (one) => typeof one.text === "string" && typeof one.only === "string" &&
  typeof one.by === "string" && typeof one.down === "boolean";

export const same = (a, b) => a.text === b.text && a.only === b.only && a.by === b.by && a.down === b.down;

export const save = (one) => keep([...saved().filter((other) => !same(one, other)), one].slice(-MOST));
export const forget = (one) => keep(saved().filter((other) => !same(one, other)));

function keep(all) {
  known = all;
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
  } catch {
    // A browser that keeps nothing: they last as long as the page.
  }
}
