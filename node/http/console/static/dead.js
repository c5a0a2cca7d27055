// Dead letters: in groups that are alike, what is in them, and the way back.

import * as api from "./api.js";
import { chip } from "./charts.js";
import { button, buttons, close, confirm, open, say } from "./dialogs.js";
import { h } from "./dom.js";
import { clock, count, plural, rate, short, span } from "./format.js";
import { body, buttonsOf, facts } from "./message.js";
import { queues, remember, state } from "./state.js";

const GROUPS_EVERY_MS = 3000; // the leader walks the whole queue for them
const LETTERS = 3; // of a group, at first
const MORE = 10; // with each click on the button below them
const PAGE = 100; // as many as the node looks at in one step
const FIRST = 10;
const RATE = 50;

export function dead() {
  return state.route.name ? one(state.route.name) : list();
}

function list() {
  const found = queues().filter((row) => row.takes_dead).sort((a, b) => b.ready + b.delayed - a.ready - a.delayed || a.name.localeCompare(b.name));
  return [
    h("div", { class: "heading", key: "head" }, h("h1", null, "Dead letters")),
    found.length === 0
      ? h("p", { class: "empty", key: "none" }, "No queue sends dead letters to another one.")
      : h("ul", { class: "list card", key: "list" }, found.map((row) => h("li", { key: row.number },
        h("a", { href: `#/dead/${encodeURIComponent(row.name)}` },
          h("span", { class: "name" }, row.name),
          h("span", { class: "soft" }, `of ${queues().filter((q) => q.dead_letter === row.name).map((q) => q.name).slice(0, 5).join(", ")}`),
          row.redrive === "running" && chip("lead", "redrive running"),
          h("span", { class: "num" }, plural(row.ready + row.delayed, "dead letter")))))),
  ];
}

// --- one queue -----------------------------------------------------------------------------------

/** Whether a group is of dead letters: a message may have been published to their queue. */
const died = (group) => group.reason !== "";
const nameOf = (group) => group.exception_type || group.reason.replaceAll("_", " ") || "no dead letters";
const keyOf = (group) => JSON.stringify([group.reason, group.source, group.exception_type, group.stack_line]);

/** Ask for the groups, and for letters of the one that is chosen; called once a second. */
export async function lookAtDead(name) {
  const { view } = state;
  if (view.asking || Date.now() - (view.askedAt ?? 0) < GROUPS_EVERY_MS) return;
  view.asking = true;
  try {
    const groups = (await api.groups(name)).items;
    if (state.route.name !== name) return;
    const chosen = groups.find((g) => keyOf(g) === view.group) ?? groups[0];
    remember({ groups, failed: null, askedAt: Date.now() });
    if (chosen && view.lettersOf !== keyOf(chosen)) lookAtLetters(name, chosen);
  } catch (error) {
    if (error.status === 0 || error.status === 401) throw error;
    remember({ failed: error.message, askedAt: Date.now() });
  } finally {
    view.asking = false;
    state.view.asking = false;
  }
}

/** Look for letters of a group from the beginning, or for `more` behind those that are shown. The
 * node looks at a page of the queue at a time, so a group that stands far behind takes a while: what
 * was looked at is shown, and another group or page ends it. */
async function lookAtLetters(name, group, more = 0) {
  const { view } = state;
  const look = {};
  const here = () => state.view === view && view.look === look;
  if (more) remember({ look, looking: true, looked: 0, wantedLetters: view.wantedLetters + more });
  else remember({ look, looking: true, looked: 0, wantedLetters: LETTERS, lettersOf: keyOf(group), letters: null, after: 0 });
  try {
    while (here() && view.after !== null && (view.letters?.length ?? 0) < view.wantedLetters) {
      const answer = await api.find(name, { limit: PAGE, after: view.after, ...conditionsOf(group) });
      if (!here()) return;
      const found = answer.items.filter((item) => isOf(group, item));
      remember({ letters: [...(view.letters ?? []), ...found], after: answer.next, looked: view.looked + PAGE });
    }
  } catch (error) {
    if (here()) remember({ failed: error.message });
  } finally {
    if (here()) remember({ looking: false, letters: view.letters ?? [] });
  }
}

/** What the node itself leaves out; the rest is left out here. */
const conditionsOf = (group) => Object.fromEntries(
  ["exception_type", "stack_line"].map((name) => [name, group[name]]).filter(([, value]) => value));

function isOf(group, { dead_letter: letter }) {
  if (!letter) return group.reason === "";
  const type = (letter.exception ?? "").split(": ")[0]; // "type: text"
  return letter.reason === group.reason && (letter.source ?? "") === group.source &&
    type === group.exception_type && (letter.stack ?? "").includes(group.stack_line);
}

function one(name) {
  const { groups, failed } = state.view;
  const chosen = groups?.find((g) => keyOf(g) === state.view.group) ?? groups?.[0];
  const shown = state.queue?.queue.name === name ? state.queue : null;
  return [
    h("div", { class: "heading", key: "head" }, h("h1", null, name),
      h("span", { class: "soft" }, shown && plural(shown.queue.messages, "message")),
      h("span", { class: "actions" }, h("a", { class: "button", href: `#/queue/${encodeURIComponent(name)}` }, "As a queue"))),
    (failed ?? state.view.missing) && h("p", { class: "error", role: "alert", key: "failed" }, failed ?? state.view.missing),
    progress(name, shown),
    !groups ? h("p", { class: "empty", key: "wait" }, "Counting …")
      : groups.length === 0 ? h("p", { class: "empty good", key: "none" }, "No dead letters.")
      : h("div", { class: "letterbox", key: "dead" },
        h("ul", { class: "groups card", "aria-label": "Groups of dead letters" }, groups.map((group) => h("li", { key: keyOf(group) },
          h("button", {
            type: "button", "aria-pressed": String(group === chosen),
            onclick: () => {
              remember({ group: keyOf(group) });
              lookAtLetters(name, group);
            },
          },
            h("b", { class: "num" }, short(group.messages)),
            h("span", { class: "group" },
              h("span", null, nameOf(group)),
              died(group) && h("code", null, group.stack_line || "no stack"),
              h("span", { class: "soft" }, [group.reason.replaceAll("_", " "), group.source && `of ${group.source}`, `last ${clock(group.last_died_ms)}`]
                .filter(Boolean).join(" · "))))))),
        details(name, chosen, shown)),
  ];
}

function details(name, group, shown) {
  const { letters, looking, looked, after, wantedLetters } = state.view;
  const anew = () => lookAtLetters(name, group);
  const may = shown?.may.manage;
  return h("section", { class: "card letters", "aria-labelledby": "group-title" },
    h("div", { class: "heading" },
      h("h2", { id: "group-title" }, `${plural(group.messages, died(group) ? "dead letter" : "message")}: ${nameOf(group)}`),
      // Without a reason no filter would name the group, and everything would go back.
      may && died(group) && h("button", { class: "primary", type: "button", onclick: () => redriveDialog(name, group) }, "Redrive …")),
    letters && letters.length === 0 && !looking && h("p", { class: "empty" }, "None of them is there any more."),
    (letters ?? []).slice(0, wantedLetters).map((one) => h("article", { class: "message", key: one.id },
        h("h3", null, h("code", null, one.id), one.key && [" · key ", h("b", null, one.key)]),
        facts(one),
        one.dead_letter && h("p", { class: "why" }, cause(one.dead_letter)),
        body(one),
        one.dead_letter && h("details", null, h("summary", null, "Stack and history"),
          one.dead_letter.stack && h("pre", { tabindex: 0, "aria-label": `Stack of ${one.id}` }, one.dead_letter.stack),
          h("ol", { class: "history" }, (one.dead_letter.history ?? []).map((step, at) => h("li", { key: at }, attempt(step))))),
        may && buttonsOf(name, one, null, anew))),
    looking && h("p", { class: "empty", key: "looking", role: "status" }, looked ? `Looking: ${plural(looked, "message")} so far …` : "Looking …"),
    !looking && letters && (after !== null || letters.length > wantedLetters) && h("p", { key: "more" }, h("button", {
      type: "button", onclick: () => lookAtLetters(name, group, MORE),
    }, "Show more")));
}

/** What its consumer said, once: a description often repeats the exception. */
function cause({ detail, description, exception }) {
  const said = [detail, description, exception].filter(Boolean);
  return said.filter((text, at) => !said.some((other, n) => n > at && other.includes(text))).join(" · ") || "no reason given";
}

const attempt = (step) => (Array.isArray(step) ? step.join(" · ") : typeof step === "object"
  ? Object.entries(step).map(([k, v]) => `${k.replaceAll("_", " ")} ${v}`).join(" · ") : String(step));

/** A redrive that runs, or how the last one ended. */
function progress(name, shown) {
  const redrive = shown?.queue.redrive;
  if (!redrive) return null;
  const live = redrive.status === "running" || redrive.status === "paused";
  return h("p", { class: `card progress ${live ? "live" : ""}`, key: "progress" },
    chip(redrive.status === "running" ? "lead" : redrive.status === "paused" ? "warn" : "plain", `redrive ${redrive.status}`),
    ` ${plural(redrive.moved, "message")} moved`,
    redrive.limit ? ` of ${count(redrive.limit)}` : "", redrive.rate_per_s ? ` at ${redrive.rate_per_s} a second` : "",
    redrive.skipped ? ` · ${redrive.skipped} skipped` : "", redrive.reason ? ` · ${redrive.reason}` : "",
    live && shown.may.manage && h("button", {
      type: "button", onclick: () => confirm({
        title: "Cancel the redrive?", act: "Cancel the redrive",
        what: h("p", null, `What was moved stays moved (${redrive.moved}); the rest stays in ${name}.`),
        run: async () => {
          await api.cancelRedrive(name);
          return `the redrive of ${name} is cancelled`;
        },
      }),
    }, "Cancel …"));
}

// --- redrive -------------------------------------------------------------------------------------

const filterOf = (group) => Object.fromEntries(Object.entries({
  reason: group.reason, source: group.source, exception_type: group.exception_type, stack_line: group.stack_line,
}).filter(([, value]) => value));

/** A few first, then the rest: each button says what it does, and a dry run says to how many. */
function redriveDialog(name, group) {
  const plan = { first: FIRST, rate: RATE, target: "", left: null, began: false };
  const filter = filterOf(group);
  const options = (more) => ({ ...filter, ...(plan.target ? { target: plan.target } : {}), ...more });
  const countAgain = async () => {
    plan.left = (await api.redrive(name, options({ dry_run: true }))).messages;
  };
  countAgain().catch((error) => {
    if (state.dialog) state.dialog.error = error.message;
  });
  open(`Redrive ${nameOf(group)}`, () => {
    const redrive = state.queue?.queue.redrive;
    const live = redrive && (redrive.status === "running" || redrive.status === "paused");
    if (plan.began && !live && plan.stale) {
      plan.stale = false;
      countAgain().catch(() => (plan.stale = true));
    }
    if (plan.began && live) plan.stale = true;
    const where = plan.target || group.source || "where they came from";
    const number = (id, label, value, set) => h("label", { key: id }, label, h("input", {
      id, type: "number", min: 1, value, oninput: (event) => set(Number(event.target.value)),
    }));
    return [
      h("p", { key: "what" }, plan.left === null ? "Counting (a dry run) …" : h("b", null, plural(plan.left, "dead letter")),
        plan.left === null ? "" : ` match (a dry run) and go to `, h("b", null, where),
        ". Attempts start anew; what fails again comes back here."),
      h("div", { class: "fields", key: "fields" },
        number("redrive-first", "First", plan.first, (value) => (plan.first = value)),
        number("redrive-rate", "Rest, a second", plan.rate, (value) => (plan.rate = value)),
        h("label", { key: "target" }, "To queue", h("input", {
          id: "redrive-target", type: "text", value: plan.target, placeholder: group.source || "its source",
          oninput: (event) => (plan.target = event.target.value.trim()),
        }))),
      plan.began && redrive && h("p", { class: "progress", key: "progress", role: "status" },
        chip(live ? "lead" : "plain", redrive.status), ` ${plural(redrive.moved, "message")} moved`,
        redrive.limit ? ` of ${count(redrive.limit)}` : "", redrive.rate_per_s ? ` at ${redrive.rate_per_s} a second` : ""),
      buttons(
        !plan.began && button(`Redrive ${count(plan.first)} first`, "primary", async () => {
          await api.redrive(name, options({ limit: plan.first }));
          plan.began = plan.stale = true;
        }),
        !live && plan.left !== null && plan.left > 0 && (!plan.stale) && button(
          plan.began ? `Redrive the other ${count(plan.left)} at ${rate(plan.rate)} a second` : `Redrive all ${count(plan.left)} at ${rate(plan.rate)} a second`,
          plan.began ? "primary" : "", async () => {
            await api.redrive(name, options({ rate_per_s: plan.rate }));
            close();
            say(`the redrive of ${plural(plan.left, "dead letter")} has begun: ${span(1000 * plan.left / plan.rate)} at ${plan.rate} a second`);
          })),
    ];
  });
}
