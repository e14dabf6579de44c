// From the agent's answers to what is shown.  Pure: the same answers give the same picture.

import { clock, day } from "./dom.js";

export const DENSE = 48; // more hosts than this are shown as one cell each
export const RECENT = 90; // seconds for which a loss is the news
const SHOWN = 600; // seconds for which a host that went has a place in its rack; later it is a line below
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

// Who went, how, when and from where, and has not come back: as the agent keeps it, and as the controller's events tell.
export function departures(events, former, members) {
  const gone = new Map();
  for (const event of events) {
    if (event.kind !== "view") continue;
    for (const how of ["failed", "left", "evicted"]) {
      for (const name of names(event, how)) gone.set(name, { how, at: event.time, epoch: event.data.epoch, rack: "", address: "" });
    }
    for (const name of names(event, "joined")) gone.delete(name);
  }
  for (const each of former ?? []) {
    // An event's time is the first that was noted of this loss; where and in which rack only the agent says.
    const told = gone.get(each.name);
    const same = told?.epoch === each.epoch;
    if (told && !same && told.epoch > each.epoch) continue;
    gone.set(each.name, { how: each.how, at: same ? told.at : each.time, epoch: each.epoch, rack: rackOf(each), address: each.address });
  }
  for (const member of members ?? []) gone.delete(member.name);
  return gone;
}

export function rackOf(member) {
  return member?.tags?.rack || "";
}

// Racks with their hosts, each with its copies and roles.
export function racks({ members, layout, status, departed, suspicions, control, now }) {
  if (!members) return []; // who is not in a view that nobody has told yet is not gone
  const hosts = new Map();
  const of = (name) => {
    if (!hosts.has(name)) hosts.set(name, { name, address: "", rack: "", present: false, roles: [], copies: [], lost: [], drained: false, frozen: false, disk: "", doubt: "", how: "" });
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
      const host = of(replica.host);
      const copy = { key: segment.key, role: replica.role, state: host.present ? replica.state : "gone", lag: replica.lag, slots: slotsOf(segment) };
      (host.present ? host.copies : host.lost).push(copy); // who is gone holds nothing, whatever the layout still says
    }
  }
  for (const [name, { how, at, rack, address }] of departed) {
    if (hosts.has(name) || now - at < SHOWN) Object.assign(of(name), { how, at, rack, address });
  }
  const carry = (role, list) => (list ?? []).forEach((name) => hosts.get(name)?.present && hosts.get(name).roles.push(role));
  carry("controller", status?.controller ? [status.controller] : []);
  carry("sequencer", layout?.roles?.sequencers?.slice(0, 1));
  carry("layout server", layout?.roles?.layout_servers);
  for (const name of layout?.drained ?? []) if (hosts.has(name)) of(name).drained = true;
  for (const name of Object.keys(control?.frozen ?? {})) if (hosts.has(name)) of(name).frozen = true;
  for (const disk of control?.disks ?? []) if (hosts.has(disk.host)) of(disk.host).disk = disk.state;
  for (const suspect of suspicions?.suspects ?? []) {
    if (hosts.has(suspect.name) && suspect.standing !== "noise") of(suspect.name).doubt = suspect.request || "suspected";
  }
  for (const name of status?.silent ?? []) if (hosts.get(name)?.present) Object.assign(of(name), { doubt: "silent", doubter: status.name });
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
  if (control?.plan && plan?.id !== control.plan_id) {
    // Its events are another controller's, or not there yet.
    plan = { id: control.plan_id, text: control.plan, at: undefined, state: "running", steps: new Map(), lines: [], moves: control.open_moves, bytes: 0 };
  }
  if (plan?.state === "running" && control && !control.plan && control.phase !== "executing") plan.state = "ended";
  return plan;
}

// The kept versions of the layout that changed the wanted segments, and how, the latest first.
export function changes(history, wanted) {
  return (history?.versions ?? []).flatMap(({ epoch, at, by, asked_at: asked, why, difference }) => {
    const changed = (difference?.segments ?? []).filter(wanted).map(({ segment, added, removed, primary }) => ({
      segment, words: [added.length ? `+ ${added.join(", ")}` : "", removed.length ? `− ${removed.join(", ")}` : "", primary ? `primary ${primary.from ?? "none"} → ${primary.to ?? "none"}` : ""].filter(Boolean).join("; "),
    }));
    return changed.length ? [{ epoch, when: at === null ? "" : `${day(at)} ${clock(at)}`, by: asked ? `${by}, asked at ${asked}` : by, why, changed }] : [];
  });
}
