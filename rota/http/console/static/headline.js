// The one sentence on the state of the cluster, worst first, and what to do about it.  Commands stand in backticks.

import { counted, listed, since } from "./dom.js";
import { RECENT, slotsOf, unitOf } from "./model.js";

// What went lately, each with its own time; a rack of which nobody is left is named as such.
function losses({ departed, members, now }) {
  const failed = [...departed].filter(([, { how, at }]) => how === "failed" && now - at < RECENT).map(([name, gone]) => ({ name, ...gone }));
  if (!failed.length) return { title: "", when: "" };
  failed.sort((one, other) => other.at - one.at);
  const left = new Set(members.map((member) => member.tags?.rack ?? ""));
  const racks = [...new Set(failed.map(({ rack }) => rack))].filter((rack) => rack && !left.has(rack));
  const names = listed(failed.map(({ name }) => name), 4);
  return {
    title: racks.length ? `${racks.length === 1 ? "Rack" : "Racks"} ${listed(racks, 4)} lost: ${names} failed` : `${names} failed`,
    when: `${listed(failed.map(({ name, at }, index) => `${name} ${index ? "" : "failed "}${since(Math.max(0, now - at))} ago`), 6)}. `,
  };
}

export function headline(state) {
  const { status, members, errors, suspicions, store } = state;
  if (!status) return { level: "busy", title: "Asking the agent …", detail: "" };
  if (status.state === "joining") return { level: "busy", title: `${status.name} is joining`, detail: "It has no view yet. `rota status` says what stands in the way." };
  if (!members) return { level: "busy", title: "Asking the agent …", detail: errors.members };
  if (status.state !== "member") {
    return { level: status.state === "leaving" ? "busy" : "bad", title: `${status.name} is ${status.state}`, detail: `What is shown is of view ${status.epoch}; ask another agent for what the others agree on since.` };
  }
  if (!status.quorum) return noMajority(status, members);
  const lost = losses(state);
  const suspects = (suspicions?.suspects ?? []).filter(({ standing }) => standing !== "noise");
  if (suspects.length) return suspected(suspects, suspicions, lost);
  if (!store) return withoutStore(state, lost);
  return ofTheController(state, lost) ?? ofThePlacement(state, lost);
}

function noMajority(status, members) {
  const silent = status.silent ?? [];
  const others = members.map(({ name }) => name).filter((name) => !silent.includes(name));
  const way = silent.length
    ? `${listed(silent, 6)} ${silent.length === 1 ? "does" : "do"} not answer. Start ${silent.length === 1 ? "it" : "those"} again; if ${silent.length === 1 ? "it never comes" : "they never come"} back, \`rota recover --survivors ${others.join(",")}\` goes on without.`
    : "Whoever does not answer is not known yet. If they are lost for good: `rota recover`.";
  return { level: "bad", title: "No majority is within reach", detail: `This side keeps view ${status.epoch} with ${counted(members.length, "member")} and changes nothing until a majority is back. ${way}` };
}

function suspected(suspects, suspicions, lost) {
  const requested = suspects.every(({ request }) => request);
  return {
    level: requested && !lost.title ? "busy" : "warn",
    title: `${listed(suspects.map(({ name }) => name), 4)} ${suspects.length === 1 ? "is" : "are"} ${requested ? "about to go" : "suspected"}`,
    detail: `${lost.when}${suspicions.reason}`,
  };
}

function withoutStore({ status, members, racks }, lost) {
  const racked = racks.filter(({ rack }) => rack).length;
  return { level: lost.title ? "warn" : "good", title: lost.title || `${counted(members.length, "member")} agree on view ${status.epoch}`, detail: `${lost.when}This agent runs without the store.${racked ? ` Racks: ${racked}.` : ""}` };
}

// What the controller is at, where that is not to rest; what an agent that stands by knows of the placement is old, so
// without the controller's word nothing is called good.
function ofTheController({ status, control, layout, plan, errors, racks }, lost) {
  const news = (level, title, detail) => ({ level: lost.title ? "warn" : level, title: lost.title || title, detail: `${lost.when}${detail}` });
  const alarm = (title, detail) => ({ level: "bad", title, detail: `${lost.when}${detail}` });
  if (errors.control) return { ...news("warn", "The controller cannot be asked", errors.control), level: "warn" };
  if (!control) return news("busy", "Asking the controller …", "");
  if (control.view_epoch !== status.epoch) return news("busy", `The controller takes view ${status.epoch} in`, `Its last word is about view ${control.view_epoch}.`);
  const why = control.last_error ? `${control.last_error.replace(/\.$/, "")}. ` : "";
  if (control.phase === "infeasible") return alarm("The rules cannot all hold", `${why}Nothing is moved for them. ${wayOutOfClash(layout)}`);
  const servers = control.layout_servers_lost ?? [];
  if (servers.length) return alarm(`A majority of the layout servers is lost, with ${listed(servers, 5)}`, why);
  if (control.away?.length) return unreadable(control.away, alarm);
  if (control.phase === "engine unreachable") return alarm("The store does not answer", `${why}\`rota doctor\` at its hosts says more.`);
  if (control.phase === "trouble") return alarm("The controller is in trouble", `${why}It tries again by itself; \`rota doctor\` at ${status.controller ?? "its host"} looks for the cause.`);
  if (!status.controller) return alarm("No host is the controller", "No live host carries the manager role; start an agent that does.");
  const steps = control.progress ? `, step ${Math.min(control.progress.steps_done + 1, control.progress.steps)} of ${control.progress.steps}` : "";
  switch (control.phase) {
    case "executing":
      return { ...news("busy", "A plan is being carried out", `It is ${(plan?.state === "running" ? plan.text : control.plan) ?? "a plan"}${steps}.`), ...(lost.title ? { title: `${lost.title}; copies are being made again` } : {}) };
    case "solving": return news("busy", "The controller is at work", "It is looking for the best placement.");
    case "looking": return news("busy", "The controller is at work", "It is looking at the store.");
    case "paused": return news("warn", "Paused", `${broken(control, layout)}No data is moved until \`rota resume\`; \`rota apply\` carries one plan out all the same.`);
    case "observing": return news("warn", "The servers are only observed", "Nothing of them is changed until `rota apply` or `rota resume`; `rota plan` shows what there is to do.");
    case "asking operators": return alarm(`${counted(control.asks.length, "repair")} ${control.asks.length === 1 ? "needs" : "need"} an operator`, control.asks.map(({ text }) => text).join("; "));
    case "waiting for hosts": return news("busy", "Waiting for hosts", control.last_error);
  }
  if (errors.layout) return { ...news("warn", "The placement cannot be read", errors.layout), level: "warn" };
  // The view is new, the rest may be as before it: who is gone is still named.
  const held = racks.flatMap(({ hosts }) => hosts).reduce((sum, { lost: copies }) => sum + copies.length, 0);
  if (held && control.phase === "settled" && !control.under_replicated) return news("warn", `${counted(held, "copy", "copies")} lost`, "The controller has not looked at the store since.");
  if (control.phase !== "settled" || !layout) return news("busy", "The controller takes its place", "What it finds is not known yet.");
  return null;
}

function wayOutOfClash(layout) {
  const drained = layout?.drained ?? [];
  const back = drained.length ? `Take a drain back (\`rota undrain ${drained[0]}\`), or s` : "S";
  return `${back}tart another host; \`rota plan\` lists the smallest changes that would help.`;
}

function unreadable(away, alarm) {
  const hosts = [...new Set(away.flatMap((each) => each.hosts))];
  const segments = [...new Set(away.map(({ segment }) => segment))];
  const way = hosts.length ? `Only ${listed(hosts, 6)} ${hosts.length === 1 ? "has" : "have"} them: start one again. If none ever comes back, \`rota log forget ${hosts.join(" ")}\` tells what that loses.` : "Their last hosts came back without them.";
  return alarm(`Records of ${listed(segments, 4)} cannot be read`, way);
}

// Which segments break a rule, and whose loss would take the last copy.
function broken(control, layout) {
  const unit = unitOf(layout);
  const found = [];
  if (control.rack_violations) found.push(`${counted(control.rack_violations, unit)} with too many copies in one rack`);
  if (control.under_replicated) found.push(`${counted(control.under_replicated, unit)} with too few copies`);
  return found.length ? `${found.join(", ")}. ` : "";
}

function lastCopies(control) {
  const last = new Map();
  for (const { copies, wanted, hosts, segment } of control.troubled ?? []) {
    if (copies < wanted && hosts.length === 1) last.set(hosts[0], [...(last.get(hosts[0]) ?? []), segment]);
  }
  return [...last].map(([host, segments]) => `With ${host} the last copy of ${listed(segments, 4)} would be lost. `).join("");
}

// The controller is at rest: what the placement lacks, or that it lacks nothing.
function ofThePlacement({ status, control, layout, members, racks, departed, now }, lost) {
  const troubles = broken(control, layout);
  if (troubles) {
    const detail = `${lost.title ? `${lost.title}. ` : ""}${lost.when}${lastCopies(control)}No host can take more copies under the rules: start another one, best in a rack of its own${layout.drained.length ? `, or \`rota undrain ${layout.drained[0]}\`` : ""}.`;
    return { level: "warn", title: troubles.replace(/\. $/, ""), detail };
  }
  const disks = control.disks ?? []; // the store goes on; but somebody has to see to the disk
  if (disks.length) {
    return {
      level: "warn",
      title: disks.map(({ host, state }) => `${host} has a ${state} disk`).join(", "),
      detail: `${lost.when}${disks.map(({ host, reason, relieved }) => `${host}: ${reason}; ${relieved ? "it is relieved" : "too few others would be left to relieve it"}`).join(". ")}. \`rota doctor\` there says more.`,
    };
  }
  const where = racks.filter(({ rack, hosts }) => rack && hosts.some(({ present }) => present)).length;
  const slots = layout.segments.reduce((sum, segment) => sum + slotsOf(segment), 0);
  const held = `${counted(layout.segments.length, unitOf(layout))}${slots ? ` with ${slots} slots` : ""}, ${layout.replication_factor ?? "any number of"} copies each; no rule is broken.`;
  const draining = layout.drained.length ? ` Drained: ${listed(layout.drained, 5)}.` : "";
  const earlier = lost.title ? "" : gone(departed, now);
  const solve = control.last_solve;
  const refused = solve?.status === "infeasible" && solve.seconds_ago < 120 ? `${solve.asked || "A request"} was refused: it would break ${listed((solve.clashing ?? []).map(({ policy }) => policy), 3)}` : "";
  return {
    level: lost.title || refused ? "warn" : "good",
    title: lost.title ? `${lost.title}; everything is in place again` : refused || "Everything is in place",
    detail: `${lost.when}${counted(members.length, "host")}${where ? ` in ${counted(where, "rack")}` : ""} hold ${held}${draining}${earlier}${lost.title && refused ? ` ${refused}.` : ""}`,
  };
}

// What failed is no news any more, but not forgotten either.
function gone(departed, now) {
  const failed = [...departed].filter(([, { how }]) => how === "failed").map(([name, { at }]) => ({ name, at }));
  failed.sort((one, other) => other.at - one.at);
  return failed.length ? ` Gone: ${listed(failed.map(({ name, at }) => `${name} (failed ${since(now - at)} ago)`), 4)}.` : "";
}
