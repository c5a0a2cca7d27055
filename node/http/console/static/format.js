// Numbers, times and bytes as people read them. Knows no page.

const COUNT = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => (n === null || n === undefined ? "–" : COUNT.format(n));
export const short = (n) => (n === null || n === undefined ? "–" : n < 10000 ? COUNT.format(n) : SHORT.format(n));

export function rate(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  return n < 10 ? n.toFixed(1) : short(Math.round(n));
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (n >= size) return `${(n / size).toFixed(n / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${n} B`;
}

/** A duration in at most two units: 43 s, 4 min 10 s, 2 h 5 min, 3 d 4 h. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let left = Math.round(s);
  const found = [];
  for (const [unit, size] of parts) {
    const n = Math.floor(left / size);
    if (n || found.length) found.push(n ? `${n} ${unit}` : null);
    left -= n * size;
    if (found.length === 2) break;
  }
  return found.filter(Boolean).join(" ");
}

export function clock(ms) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString()
    ? time
    : `${at.toLocaleDateString("en-CA")} ${time}`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** The bytes of a message as JSON, text, or hex: what fits best first. */
export function forms(message) {
  if (message.body === undefined) {
    const raw = atob(message.body_base64 ?? "");
    return { hex: hex(Uint8Array.from(raw, (c) => c.charCodeAt(0))) };
  }
  const found = {};
  try {
    found.json = JSON.stringify(JSON.parse(message.body), null, 2);
  } catch {
    // No JSON: then it is text.
  }
  found.text = message.body;
  found.hex = hex(new TextEncoder().encode(message.body));
  return found;
}

const HEX_BYTES_MAX = 4096; // a screen or ten; the command line has all of it

function hex(all) {
  const lines = [];
  for (let at = 0; at < Math.min(all.length, HEX_BYTES_MAX); at += 16) {
    const part = [...all.slice(at, at + 16)];
    const left = part.map((b) => b.toString(16).padStart(2, "0")).join(" ");
    const right = part.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${left.padEnd(47)}  ${right}`);
  }
  if (all.length > HEX_BYTES_MAX) lines.push(`… ${all.length - HEX_BYTES_MAX} bytes more`);
  return lines.join("\n");
}
