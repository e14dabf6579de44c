// The plan: what is being done about the placement, and how far it is.

import { bytes, clock, counted, h, show, since } from "../dom.js";

const SIGNS = { running: "…", done: "✓", again: "↻", failed: "✕" };

export function renderPlan(place, { plan, control, problem, store, now }) {
  if (!store) {
    show(place, "no store", () => h("p", { class: "nothing" }, "This agent runs without the store: there is nothing to place."));
    return;
  }
  if (!plan) {
    show(place, ["none", problem], () => h("p", { class: problem ? "problem" : "nothing" }, problem || "No plan yet."));
    return;
  }
  const steps = [...plan.steps.values()];
  const done = steps.filter(({ state }) => state === "done").length;
  const progress = plan.state === "running" ? control?.progress : null;
  const total = Math.max(progress?.steps ?? 0, steps.length);
  const part = plan.state === "done" ? 1 : progress && progress.bytes > 0 ? progress.bytes_done / progress.bytes : total ? done / total : 0;
  const ago = plan.ended === undefined ? null : Math.max(0, now - plan.ended);
  const words = {
    running: plan.at === undefined ? "being carried out" : `being carried out for ${since(Math.max(0, now - plan.at))}`, done: `done ${since(ago)} ago, in ${since(plan.ended - plan.at)}`,
    failed: `failed ${since(ago)} ago`, superseded: `overtaken by another view ${since(ago)} ago`, ended: "ended",
  }[plan.state];
  const level = { running: "busy", done: "good", failed: "bad", superseded: "warn", ended: "warn" }[plan.state];
  show(place, [plan.id, plan.state, words, steps, progress, problem], () => [
    h("div", { class: "solve" }, h("span", { class: `bdg ${level}`, "data-plan-state": plan.state }, plan.state === "superseded" ? "overtaken" : plan.state), h("span", { class: "name" }, plan.id), h("span", { class: "soft" }, words)),
    progressBar(part, `${Math.round(100 * part)} % of plan ${plan.id}`),
    h("p", { class: "soft" }, [
      counted(plan.moves, "move"),
      total ? `${done} of ${counted(total, "step")} done` : "",
      progress && progress.bytes ? `${bytes(progress.bytes_done)} of ${bytes(progress.bytes)}` : plan.bytes ? `${bytes(plan.bytes)} to copy` : "",
      plan.at === undefined ? "" : `begun ${clock(plan.at)}`,
    ].filter(Boolean).join(" · ")),
    plan.why ? h("p", { class: "problem" }, plan.why) : null,
    steps.length ? h("ol", { class: "steps" }, steps.slice(-40).map(({ text, state }) => h("li", {}, h("span", { class: state, "aria-hidden": "true" }, SIGNS[state] ?? "·"), h("span", {}, text, h("span", { class: "unseen" }, ` (${state})`))))) : null,
    plan.lines.length ? h("details", {}, h("summary", {}, `${counted(plan.moves, "move")}, one by one`), h("ol", { class: "moves", tabindex: "0", "aria-label": "moves" }, plan.lines.map((line) => h("li", {}, line)))) : null,
    problem ? h("p", { class: "problem" }, problem) : null,
  ]);
}

// The controller's own switch, and the plan of now by itself.
export function renderPlanActions(place, { actions, control, store }) {
  const stopped = control?.paused || control?.observing;
  show(place, [actions.allowed && store && Boolean(control), control?.paused, control?.observing, control?.restoring, control?.plan], () => (!actions.allowed || !store || !control ? [] : [
    stopped ? actions.button("Resume …", () => actions.resume(control)) : actions.button("Pause …", () => actions.pause(control)),
    actions.button("Apply …", () => actions.apply(control)),
  ]));
}

export function progressBar(part, label) {
  const fill = h("span", {});
  fill.style.setProperty("--part", `${Math.round(100 * part)}%`);
  return h("div", { class: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": String(Math.round(100 * part)), "aria-label": label }, fill);
}
