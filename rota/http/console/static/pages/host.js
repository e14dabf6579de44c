// The page of one host: where it is, what it runs and holds, how its disk is, and what has happened to it.

import { bytes, clock, consoleLink, counted, day, factList, h, listed, name, pageLink, show, since, table } from "../dom.js";
import { changes, stateOf } from "../model.js";
import { renderEvents } from "../panels/events.js";
import { Plots } from "../panels/plots.js";

export class HostPage {
  constructor(host, actions) {
    this.host = host;
    this.actions = actions;
    this.buttons = h("span", { class: "actions" });
    this.present = false;
    this.facts = h("div", {});
    this.copies = h("div", {});
    this.plots = h("div", {});
    this.events = h("div", {});
    this.placed = h("div", {});
    this.drawn = new Plots(this.plots);
    this.element = [
      h("section", { class: "panel", "aria-label": `Host ${host}` }, this.facts),
      h("section", { class: "panel", "aria-label": "Copies" }, h("header", {}, h("h2", {}, "Copies")), this.copies),
      h("section", { class: "panel", "aria-label": "The last hour" }, h("header", {}, h("h2", {}, "The last hour")), this.plots),
      h("section", { class: "panel", "aria-label": "History" }, h("header", {}, h("h2", {}, "History")), this.events),
      h("section", { class: "panel", "aria-label": "In the layout" }, h("header", {}, h("h2", {}, "In the layout")), this.placed),
    ];
  }

  get title() {
    return this.host;
  }

  resources() {
    const layout = { history: { path: "/v1/layout/history", every: 20000 } };
    if (!this.present) return layout; // who is gone cannot be asked
    return { ...layout, report: { path: `/v1/hosts/${encodeURIComponent(this.host)}`, every: 10000 } };
  }

  render({ members, groups, layout, control, departed, events, held, now, status }) {
    const member = members?.find((each) => each.name === this.host);
    const shown = groups.flatMap(({ hosts }) => hosts).find((each) => each.name === this.host);
    const gone = departed.get(this.host);
    this.present = Boolean(member);
    const report = member ? held("report").data : null;
    const problem = member ? held("report").error : "";
    const state = gone && !member ? gone.how : shown ? stateOf(shown) : member ? "member" : "";
    const facts = this.known({ member, gone, shown, report, now, epoch: status?.epoch });
    show(this.facts, [Boolean(members), state, shown?.roles, problem, facts.map(([term, value]) => [term, value?.textContent ?? value])], () => {
      if (!state) return h("p", { class: "nothing" }, members ? `No host ${this.host} is known here, present or gone in the last 72 hours.` : "Asking the agent …");
      const level = !member ? "bad" : state === "member" ? "good" : "warn";
      return [
        h("div", { class: "solve" }, h("h2", {}, name(this.host)), h("span", { class: `bdg ${level}` }, state), (shown?.roles ?? []).map((role) => h("span", { class: "bdg role" }, role)), this.buttons),
        factList(facts),
        problem ? h("p", { class: "problem" }, problem) : null,
      ];
    });
    const drained = (layout?.drained ?? []).includes(this.host);
    const paused = Boolean(control?.paused || control?.observing);
    show(this.buttons, [this.actions.allowed, Boolean(member && layout), drained, paused], () => (!this.actions.allowed || !member || !layout ? [] : [
      drained ? this.actions.button("Undrain …", () => this.actions.undrain(this.host, { paused })) : this.actions.button("Drain …", () => this.actions.drain(this.host, { paused })),
    ]));
    this.renderCopies(layout, control, report, Boolean(member));
    this.drawn.render({ measured: report ? { [this.host]: report.measured } : {}, problem, none: !member ? "It is gone, and so is what it measured." : report ? undefined : "Asking its agent …", now });
    this.renderPlaced(held("history"));
    renderEvents(this.events, events.filter((event) => concerns(event, this.host)), "all");
  }

  known({ member, gone, shown, report, now, epoch }) {
    const link = member ? consoleLink(member.http, member.http, `#/host/${encodeURIComponent(this.host)}`) : null;
    const tags = (shown?.tags ?? []).filter((tag) => !tag.startsWith("rack="));
    return [
      ["last seen", member ? (shown?.doubt ? `in view ${epoch}; ${stateOf(shown)}` : `now, in view ${epoch}`) : gone ? `${gone.how} ${day(gone.at)} ${clock(gone.at)}, ${since(now - gone.at)} ago; view ${gone.epoch} is the first without it` : "not in the view"],
      ["address", member?.address ?? gone?.address],
      ["console", link ?? (member ? (member.http ? `${member.http}, which this browser cannot reach` : "it does not say where") : null)],
      ["version", member ? member.version ?? "before 0.2" : null],
      ["rack", shown?.rack || gone?.rack || "none"],
      ["tags", tags.length ? tags.join("  ") : null],
      ["capacity", member?.tags?.capacity ? bytes(Number(member.tags.capacity)) : null],
      ["member since", member ? `view ${member.joined_epoch}` : null],
      ["runs since", report ? `${day(report.started)} ${clock(report.started)}, for ${since(report.time - report.started)}` : null],
      ["disk", report?.disk ? diskWords(report.disk) : null],
      ["room", report?.space ? `${bytes(report.space.free)} of ${bytes(report.space.total)} free` : null],
      ["holds", report?.held ? `${counted(report.held.records, "record")}, ${bytes(report.held.bytes)}` : member ? null : "nothing"],
      ["servers", report?.engine ? `${report.engine.name}: ${report.engine.servers.join(", ")}` : null],
    ].filter(([, value]) => value !== null && value !== undefined);
  }

  renderPlaced({ data, error }) {
    const touches = ({ added, removed, primary }) => [...added, ...removed, primary?.from, primary?.to].includes(this.host);
    const versions = changes(data, touches);
    show(this.placed, [versions.map(({ epoch }) => epoch), error], () => {
      if (error) return h("p", { class: "problem" }, error);
      if (!versions.length) return h("p", { class: "nothing" }, "No version of the layout that is kept has changed anything of it.");
      return table(["epoch", "when", "by", "segments", "why"], versions.map(({ epoch, when, by, why, changed }) => [epoch, when, by, listed(changed.map(({ segment }) => segment), 12), why]), [0]);
    });
  }

  renderCopies(layout, control, report, present) {
    const records = new Map((report?.held?.segments ?? []).map((each) => [each.key, each]));
    const pinned = new Set((control?.pins ?? []).filter(({ host }) => host === this.host).map(({ segment }) => segment));
    const rows = (layout?.segments ?? []).flatMap((segment) => segment.replicas.filter((replica) => replica.host === this.host).map((replica) => [
      segment.key, replica.role, present ? replica.state.replace("_", " ") : "lost", records.get(segment.key)?.records, replica.bytes, pinned.has(segment.key) ? "here" : null,
    ]));
    show(this.copies, rows, () => (rows.length ? table(["segment", "role", "state", "records", "bytes", "pinned"], rows.map(([key, role, state, count, size, pin]) => [pageLink("segment", key), role, state, count, bytes(size), pin]), [3, 4]) : h("p", { class: "nothing" }, "It holds no copy.")));
  }
}

function diskWords({ state, reason, sync_seconds: sync }) {
  return `${state === "ok" ? "in order" : state}${reason ? `: ${reason}` : ""}${sync ? `; a write takes ${(1000 * sync).toPrecision(2)} ms` : ""}`;
}

// Whether an event is about a host, by its data or by its words.
export function concerns(event, host) {
  const named = (value) => value === host || (Array.isArray(value) && value.includes(host));
  return Object.values(event.data ?? {}).some(named) || String(event.text).split(/[^\p{L}\p{N}._-]+/u).some((word) => word.replace(/[.]$/, "") === host);
}
