// The page of one segment: its copies, what they hold, why they are where they are, and how it came about.

import { bytes, counted, factList, h, name, pageLink, show, table } from "../dom.js";
import { changes, slotsOf, unitOf } from "../model.js";

const REPORTS = 8; // hosts that are asked what they hold

export class SegmentPage {
  constructor(key, source) {
    this.key = key;
    this.source = source;
    this.hosts = [];
    this.why = null;
    this.facts = h("div", {});
    this.copies = h("div", {});
    this.reasons = h("div", {});
    this.history = h("div", {});
    const ask = h("button", { class: "plain" }, "Why are they there?");
    ask.addEventListener("click", () => this.explain());
    this.element = [
      h("section", { class: "panel", "aria-label": `Segment ${key}` }, this.facts),
      h("section", { class: "panel", "aria-label": "Copies" }, h("header", {}, h("h2", {}, "Copies"), ask), this.copies, this.reasons),
      h("section", { class: "panel", "aria-label": "How the placement came about" }, h("header", {}, h("h2", {}, "How the placement came about")), this.history),
    ];
  }

  get title() {
    return this.key;
  }

  resources() {
    const reports = this.hosts.map((host) => [`report ${host}`, { path: `/v1/hosts/${encodeURIComponent(host)}`, every: 10000 }]);
    return { history: { path: "/v1/layout/history", every: 20000 }, ...Object.fromEntries(reports) };
  }

  async explain() {
    this.why = { lines: ["Asking the controller …"] };
    this.source.changed();
    const { answer, error } = await this.source.send("/v1/why", { name: this.key });
    this.why = error ? { lines: [], error } : answer;
    this.source.changed();
  }

  render({ layout, members, control, held }) {
    const segment = layout?.segments.find((each) => each.key === this.key);
    const live = new Map((members ?? []).map((member) => [member.name, member]));
    this.hosts = (segment?.replicas ?? []).map(({ host }) => host).filter((host) => live.has(host)).slice(0, REPORTS);
    const records = new Map(this.hosts.map((host) => [host, held(`report ${host}`).data?.held?.segments.find(({ key }) => key === this.key)?.records]));
    const away = (control?.away ?? []).filter((each) => each.segment === this.key);
    const most = Math.max(...[...records.values()].filter(Number.isFinite), -1);
    show(this.facts, [Boolean(layout), segment, away, most], () => {
      if (!segment) return h("p", { class: "nothing" }, layout ? `No segment ${this.key} is in the layout.` : "The layout is not known yet.");
      const intact = segment.replicas.filter(({ host, state }) => live.has(host) && state === "in_sync").length;
      const wanted = layout.replication_factor;
      return [
        h("div", { class: "solve" }, h("h2", {}, name(this.key)), h("span", { class: "soft" }, unitOf(layout)), h("span", { class: `bdg ${away.length ? "bad" : wanted && intact < wanted ? "warn" : "good"}` }, away.length ? "cannot be read" : wanted ? `${intact} of ${counted(wanted, "copy", "copies")}` : counted(intact, "copy", "copies")), segment.retired ? h("span", { class: "bdg" }, "takes no more records") : null),
        factList([
          ["size", bytes(segment.bytes)],
          ["records", most >= 0 ? String(most) : null],
          ["slots", slotsOf(segment) ? `${slotsOf(segment)}: ${segment.slots.map(([first, last]) => `${first}–${last}`).join(", ")}` : null],
          ["load", segment.load ? `${Math.round(segment.load)} operations a second` : null],
        ]),
        away.map(({ start, end, hosts }) => h("p", { class: "problem" }, `Addresses ${start} to ${end - 1} ${hosts.length ? `are only on ${hosts.join(", ")}: start one of them` : "were lost with their last hosts"}.`)),
      ];
    });
    const pins = new Set((control?.pins ?? []).filter((pin) => pin.segment === this.key).map(({ host }) => host));
    const rows = (segment?.replicas ?? []).map((replica) => [replica.host, replica.rack, replica.role, live.has(replica.host) ? replica.state.replace("_", " ") : "lost", records.get(replica.host), replica.bytes, replica.lag, pins.has(replica.host)]);
    show(this.copies, rows, () => table(["host", "rack", "role", "state", "records", "bytes", "to copy", "pinned"], rows.map(([host, rack, role, state, count, size, lag, pinned]) => [pageLink("host", host), rack, role, state, count, bytes(size), lag ? bytes(lag) : null, pinned ? "here" : null]), [4, 5, 6]));
    show(this.reasons, this.why, () => (this.why ? h("div", { class: "answer", role: "status" }, this.why.lines.map((line) => h("p", {}, line)), this.why.error ? h("p", { class: "problem" }, this.why.error) : null) : []));
    this.renderHistory(held("history"));
  }

  renderHistory({ data, error }) {
    const versions = changes(data, ({ segment }) => segment === this.key);
    show(this.history, [versions.map(({ epoch }) => epoch), error], () => {
      if (error) return h("p", { class: "problem" }, error);
      if (!versions.length) return h("p", { class: "nothing" }, "Nothing of it has changed in the versions that are kept.");
      return table(["epoch", "when", "by", "what changed", "why"], versions.map(({ epoch, when, by, why, changed }) => [epoch, when, by, changed.map(({ words }) => words).join("; "), why]), [0]);
    });
  }
}
