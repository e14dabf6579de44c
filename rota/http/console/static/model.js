// From the agent's answers to what is shown.  Pure: the same answers give the same picture.

import { counted, listed, since } from "./dom.js";

export const DENSE = 48; // more hosts than this are shown as one cell each
const GHOSTS = 180; // seconds for which a host that went is still shown
const TROUBLE = new Set([
  "quorum-lost", "infeasible", "undecided", "unavailable", "plan-failed", "step-failed", "drain-refused",
  "trouble", "fenced", "engine-unreachable", "drift", "asks", "server-ended", "server-silent",
]);

export function isTrouble(event) {
  return TROUBLE.has(event.kind) || (event.kind === "view" && lost(event).length > 0);
}

function names(event, key) {
  const found = event.data?.[key];
  return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
}

function lost(event) {
  return names(event, "failed");
}

// Who went, how and when, and has not come back.
export function departures(events, members, now) {
  const gone = new Map();
  for (const event of events) {
    if (event.kind !== "view") continue;
    for (const [how, key] of [["failed", "failed"], ["left", "left"], ["evicted", "evicted"]]) {
      for (const name of names(event, key)) gone.set(name, { how, at: event.time, epoch: event.data.epoch });
    }
    for (const name of names(event, "joined")) gone.delete(name);
  }
  for (const member of members ?? []) gone.delete(member.name);
  for (const [name, { at }] of gone) if (now - at > GHOSTS) gone.delete(name);
  return gone;
}

export function rackOf(member) {
  return member?.tags?.rack || "";
}

// Racks with their hosts, each with its copies and roles.
export function racks({ members, layout, status, departed, knownRacks, suspicions, control }) {
  if (!members) return []; // who is not in a view that nobody has told yet is not gone
  const hosts = new Map();
  const of = (name) => {
    if (!hosts.has(name)) hosts.set(name, { name, address: "", rack: knownRacks.get(name) ?? "", present: false, roles: [], copies: [], drained: false, frozen: false, disk: "", doubt: "", how: "" });
    return hosts.get(name);
  };
  for (const member of members ?? []) {
    Object.assign(of(member.name), {
      address: member.address, rack: rackOf(member), present: true, since: member.joined_epoch,
      tags: Object.entries(member.tags ?? {}).filter(([key]) => !["capacity", "engine", "store"].includes(key)).map(([key, value]) => `${key}=${value}`),
    });
  }
  for (const segment of layout?.segments ?? []) {
    for (const replica of segment.replicas) {
      of(replica.host).copies.push({ key: segment.key, role: replica.role, state: replica.state, lag: replica.lag, slots: slotsOf(segment) });
    }
  }
  for (const [name, { how, at }] of departed) Object.assign(of(name), { how, at });
  for (const [role, list] of [["layout server", layout?.roles?.layout_servers], ["sequencer", layout?.roles?.sequencers?.slice(0, 1)]]) {
    for (const name of list ?? []) of(name).roles.push(role);
  }
  if (status?.controller) of(status.controller).roles.unshift("controller");
  for (const name of layout?.drained ?? []) if (hosts.has(name)) of(name).drained = true;
  for (const name of Object.keys(control?.frozen ?? {})) if (hosts.has(name)) of(name).frozen = true;
  for (const disk of control?.disks ?? []) if (hosts.has(disk.host)) of(disk.host).disk = disk.state;
  for (const suspect of suspicions?.suspects ?? []) {
    if (hosts.has(suspect.name) && suspect.standing !== "noise") of(suspect.name).doubt = suspect.wish || "suspected";
  }
  for (const { name, failed } of suspicions?.own ?? []) {
    const host = hosts.get(name);
    if (failed && host?.present && !host.doubt) Object.assign(host, { doubt: "silent", doubter: suspicions.agent });
  }
  const grouped = new Map();
  for (const host of [...hosts.values()].sort(byName)) {
    const rack = host.rack;
    if (!grouped.has(rack)) grouped.set(rack, []);
    grouped.get(rack).push(host);
  }
  return [...grouped].sort(([one], [other]) => natural(one || "\uffff", other || "\uffff")).map(([rack, list]) => ({ rack, hosts: list }));
}

// How many slots a shard holds; none where the engine has no slots.
export function slotsOf(segment) {
  return (segment.slots ?? []).reduce((sum, [first, last]) => sum + last - first + 1, 0);
}

// What the store is divided into.
export function unitOf(layout) {
  return (layout?.segments ?? []).some((segment) => slotsOf(segment)) ? "shard" : "segment";
}

const collator = new Intl.Collator("en", { numeric: true });
export function natural(one, other) {
  return collator.compare(one, other);
}
function byName(one, other) {
  return natural(one.name, other.name);
}

export function stateOf(host) {
  if (!host.present) return host.how || "not in the view";
  if (host.doubt === "leave") return "leaving";
  if (host.doubt === "evict") return "being evicted";
  if (host.doubt === "silent") return `does not answer ${host.doubter}`;
  if (host.doubt) return "suspected";
  if (host.disk) return `${{ full: "full", failed: "failed", slow: "slow" }[host.disk] ?? "bad"} disk`;
  if (host.drained) return host.copies.length ? "being drained" : "drained";
  return host.frozen ? "back for so short: no new copies yet" : "member";
}

// The current plan, or the last one, as its events tell it.
export function planOf(events, control) {
  let plan = null;
  for (const event of events) {
    const id = event.data?.plan_id;
    if (event.kind === "plan") {
      plan = { id, text: event.text, at: event.time, state: "running", steps: new Map(), lines: event.data.lines ?? [], moves: event.data.moves, bytes: event.data.bytes };
    } else if (event.kind === "step-started") {
      // Steps of a repair belong to no plan.
      if (plan?.id === id) plan.steps.set(event.text, { text: event.text, state: "running", at: event.time });
    } else if (event.kind.startsWith("step-") && plan?.steps.has(event.text)) {
      plan.steps.get(event.text).state = { "step-done": "done", "step-retry": "again", "step-failed": "failed", "step-cancelled": "cancelled" }[event.kind] ?? event.kind;
    } else if (plan && id === plan.id && event.kind === "plan-done") Object.assign(plan, { state: "done", ended: event.time });
    else if (plan && id === plan.id && event.kind === "plan-failed") Object.assign(plan, { state: "failed", ended: event.time, why: event.text });
    else if (plan && id === plan.id && event.kind === "plan-superseded") Object.assign(plan, { state: "superseded", ended: event.time });
  }
  if (plan?.state === "running" && control && !control.plan && control.phase !== "executing") plan.state = "ended";
  return plan;
}

// The one sentence.  Worst first.
export function headline({ status, control, layout, members, racks: groups, plan, departed, suspicions, now, errors, store }) {
  if (!status) return { level: "busy", title: "Asking the agent …", detail: "" };
  if (status.state === "joining") return { level: "busy", title: `${status.name} is joining`, detail: "It has no view yet. `rota status` says what stands in the way." };
  if (!members) return { level: "busy", title: "Asking the agent …", detail: errors.members };
  if (status.state !== "member") {
    return { level: status.state === "leaving" ? "busy" : "bad", title: `${status.name} is ${status.state}`, detail: `What is shown is of view ${status.epoch}; ask another agent for what the others agree on since.` };
  }
  const size = members.length;
  if (!status.quorum) {
    return {
      level: "bad", title: "No majority is within reach",
      detail: `This side keeps view ${status.epoch} with ${counted(size, "member")} and changes nothing until a majority is back. If it is lost for good: rota recover.`,
    };
  }
  const recent = [...departed].filter(([, { at }]) => now - at < 90).map(([name, gone]) => ({ name, ...gone }));
  const failed = recent.filter(({ how }) => how === "failed");
  const lostWords = failed.length ? `${listed(failed.map(({ name }) => name), 4)} failed` : "";
  const lostWhen = failed.length ? `${counted(failed.length, "host")} lost ${since(now - failed[failed.length - 1].at)} ago. ` : "";
  const suspects = (suspicions?.suspects ?? []).filter(({ standing }) => standing !== "noise");
  if (suspects.length) {
    const wishes = suspects.every(({ wish }) => wish);
    return {
      level: wishes ? "busy" : "warn",
      title: `${listed(suspects.map(({ name }) => name), 4)} ${suspects.length === 1 ? "is" : "are"} ${wishes ? "about to go" : "suspected"}`,
      detail: suspicions.reason,
    };
  }
  if (!store) {
    const racked = groups.filter(({ rack }) => rack).length;
    return { level: lostWords ? "warn" : "good", title: lostWords || `${counted(size, "member")} agree on view ${status.epoch}`, detail: `This agent runs without the store.${racked ? ` Racks: ${racked}.` : ""}` };
  }
  // What an agent that stands by knows of the placement is old; without the controller's word nothing is called good.
  if (errors.control) return { level: "warn", title: lostWords || "The controller cannot be asked", detail: `${lostWhen}${errors.control}` };
  if (!control) return { level: "busy", title: lostWords || "Asking the controller …", detail: lostWhen };
  if (control.view_epoch !== status.epoch) return { level: lostWords ? "warn" : "busy", title: lostWords || `The controller takes view ${status.epoch} in`, detail: `${lostWhen}Its last word is about view ${control.view_epoch}.` };
  const state = control;
  if (state.phase === "infeasible") return { level: "bad", title: "The rules cannot all hold", detail: `${state.last_error}. Nothing is moved for them; see Policies.` };
  const away = state.layout_servers_lost ?? [];
  if (away.length) return { level: "bad", title: `A majority of the layout servers is lost, with ${listed(away, 5)}`, detail: `${state.last_error}.` };
  if (state.phase === "engine unreachable") return { level: "bad", title: "The store does not answer", detail: state.last_error };
  if (state.phase === "trouble") return { level: "bad", title: "The controller is in trouble", detail: state.last_error };
  if (!status.controller) return { level: "bad", title: "No host is the controller", detail: "No live host carries the manager role; start an agent that does." };
  const steps = state.progress ? `, step ${Math.min(state.progress.steps_done + 1, state.progress.steps)} of ${state.progress.steps}` : "";
  if (state.phase === "executing") return { level: lostWords ? "warn" : "busy", title: lostWords ? `${lostWords}; its copies are being made again` : "A plan is being carried out", detail: `${lostWhen}${(plan?.state === "running" ? plan.text : state.plan) ?? ""}${steps}.` };
  if (state.phase === "solving" || state.phase === "looking") return { level: lostWords ? "warn" : "busy", title: lostWords || "The controller is at work", detail: `${lostWhen}It is ${state.phase === "solving" ? "looking for the best placement" : "looking at the store"}.` };
  if (state.phase === "paused") return { level: "warn", title: lostWords || "Paused", detail: `${lostWhen}No data is moved until rota resume; rota apply carries one plan out all the same.` };
  if (state.phase === "observing") return { level: "warn", title: lostWords || "The servers are only observed", detail: `${lostWhen}Nothing of them is changed until rota apply or rota resume; rota plan shows what there is to do.` };
  if (state.phase === "asking operators") return { level: "bad", title: `${counted(state.asks.length, "repair")} ${state.asks.length === 1 ? "needs" : "need"} an operator`, detail: state.asks.map(({ text }) => text).join("; ") };
  if (state.phase === "waiting for hosts") return { level: "busy", title: "Waiting for hosts", detail: state.last_error };
  if (errors.layout) return { level: "warn", title: lostWords || "The placement cannot be read", detail: `${lostWhen}${errors.layout}` };
  if (state.phase !== "settled" || !layout) return { level: "busy", title: lostWords || "The controller takes its place", detail: `${lostWhen}What it finds is not known yet.` };
  const broken = [];
  if (state.rack_violations) broken.push(counted(state.rack_violations, unitOf(layout)) + " with too many copies in one rack");
  if (state.under_replicated) broken.push(counted(state.under_replicated, unitOf(layout)) + " with too few copies");
  if (broken.length) return { level: "warn", title: `${broken.join(", ")}`, detail: [lostWords, lostWhen].filter(Boolean).join(". ") };
  // The store goes on; but somebody has to see to the disk.
  const disks = state.disks ?? [];
  if (disks.length) {
    return {
      level: "warn",
      title: disks.map(({ host, state: how }) => `${host} has a ${how} disk`).join(", "),
      detail: `${lostWhen}${disks.map(({ host, reason, relieved }) => `${host}: ${reason}; ${relieved ? "it is relieved" : "too few others would be left to relieve it"}`).join(". ")}.`,
    };
  }
  const segments = layout.segments.length;
  const where = groups.filter(({ rack, hosts }) => rack && hosts.some(({ present }) => present)).length;
  const slots = layout.segments.reduce((sum, segment) => sum + slotsOf(segment), 0);
  const held = `${counted(segments, unitOf(layout))}${slots ? ` with ${slots} slots` : ""}, ${layout.replication_factor ?? "any number of"} copies each; no rule is broken.`;
  const draining = layout.drained.length ? ` Drained: ${listed(layout.drained, 5)}.` : "";
  const hosts = `${counted(size, "host")}${where ? ` in ${counted(where, "rack")}` : ""}`;
  const refused = state.last_solve?.status === "infeasible" && state.last_solve.seconds_ago < 120 ? `${state.last_solve.asked || "A request"} was refused: it would break ${listed((state.last_solve.clashing ?? []).map(({ policy }) => policy), 3)}` : "";
  return {
    level: lostWords || refused ? "warn" : "good",
    title: lostWords ? `${lostWords}; everything is in place again` : refused || "Everything is in place",
    detail: `${lostWhen}${hosts} hold ${held}${draining}${lostWords && refused ? ` ${refused}.` : ""}`,
  };
}
