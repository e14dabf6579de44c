// The help: what the page shows, which commands do the same, and which versions there are.

import { counted, h, show, table, worded } from "../dom.js";

const PANELS = [
  ["The sentence on top", "The state of the cluster, the worst first, and what to do where there is something to do."],
  ["Hosts by rack", "Who is in the view, roles and copies. `find` takes hosts, racks, segments, roles and tags. A host or a segment opens its page."],
  ["Views", "The size of the view over time, and a dot for each member and view it installed: agreement is a column of dots."],
  ["The last hour", "What each agent measured itself, every ten seconds. Point at a line for its numbers."],
  ["Plan", "What is carried out now or was last, step by step."],
  ["Suspicions", "Who accuses whom, and why there is no new view yet; only while somebody does."],
  ["Streams and maps", "How much there is of each and how fast it grows; the last records and the first keys, to read."],
  ["Policies", "The last search for a placement. Tier 1 is met first; `bound` is what is proven to be the least. When rules clash, which."],
  ["Events", "What happened at the controller, the newest first."],
];

const COMMANDS = [
  ["rota status", "health in lines, and an exit status for scripts"], ["rota members --all", "who is in, and who went, when and how"],
  ["rota plan", "what the controller would do now"], ["rota why SEGMENT", "why its copies are where they are"],
  ["rota drain HOST", "empty a host; `rota undrain HOST` takes it back"], ["rota pause", "move no data until `rota resume`"],
  ["rota events --follow", "what happens, as it happens"], ["rota doctor", "what is wrong with a host"], ["rota help", "all of them"],
];

const SIGNS = [["●", "a member"], ["?", "suspected, or about to go"], ["✕", "gone, or does not answer"], ["–", "drained"], ["C S L", "controller, sequencer, layout server, where hosts are cells"]];

export class HelpPage {
  constructor() {
    this.versions = h("div", {});
    const section = (title, ...children) => h("section", { class: "panel", "aria-label": title }, h("header", {}, h("h2", {}, title)), children);
    this.element = [
      section("Version", this.versions),
      section("What is where", terms(PANELS)),
      section("Signs and keys", terms(SIGNS), h("p", { class: "soft" }, "Arrow keys move between hosts where those are cells, and between views in the figure of views. Everything shown has an age; what is old says so.")),
      section("The same in the terminal", h("dl", { class: "terms" }, COMMANDS.map(([command, what]) => h("div", {}, h("dt", {}, h("code", {}, command)), h("dd", {}, worded(what)))))),
      section("For programs", h("p", {}, worded("`/v1/openapi.json` describes the interface that this page uses, `/metrics` is for Prometheus, `/healthz` and `/readyz` for whoever starts agents. `docs/console.md` and `docs/operations.md` say more."))),
    ];
  }

  get title() {
    return "help";
  }

  resources() {
    return {};
  }

  render({ status, members }) {
    const counts = new Map();
    for (const { version } of members ?? []) counts.set(version ?? "before 0.2", (counts.get(version ?? "before 0.2") ?? 0) + 1);
    show(this.versions, [status?.version, [...counts]], () => [
      h("p", {}, status ? `${status.name} runs rota ${status.version ?? "before 0.2"}.` : "Asking the agent …"),
      counts.size > 1 ? table(["version", "members"], [...counts].sort().map(([version, count]) => [version, count]), [1]) : counts.size ? h("p", { class: "soft" }, `So ${members.length === 1 ? "does the only member" : `do all ${counted(members.length, "member")}`}.`) : null,
    ]);
  }
}

function terms(list) {
  return h("dl", { class: "terms" }, list.map(([term, what]) => h("div", {}, h("dt", {}, term), h("dd", {}, worded(what)))));
}
