// Policies: the last solve, the objectives with their bounds, and in words what clashes when nothing satisfies them.

import { counted, h, name, show, since } from "../dom.js";

export function renderPolicies(place, { listing, control, problem, store }) {
  if (!store) {
    show(place, "no store", () => h("p", { class: "nothing" }, "This agent runs without the store, and so without policies."));
    return;
  }
  const solve = control?.last_solve;
  if (!solve && !listing) {
    show(place, ["none", problem], () => h("p", { class: problem ? "problem" : "nothing" }, problem || "Nothing was solved yet."));
    return;
  }
  const meanings = new Map((listing?.policies ?? []).map((policy) => [policy.name, policy]));
  const ago = solve ? since(solve.seconds_ago + (control.fetched_ago ?? 0)) : "";
  show(place, [solve && { ...solve, seconds_ago: ago }, listing, problem], () => [
    solve ? summary(solve, ago) : h("p", { class: "nothing" }, "Nothing was solved yet."),
    solve?.clashing ? core(solve, meanings) : null,
    solve?.status === "undecided" ? h("p", { class: "problem" }, solve.text) : null,
    solve?.objectives?.length ? objectives(solve.objectives, meanings) : null,
    listing ? rules(listing) : null,
    problem ? h("p", { class: "problem" }, problem) : null,
  ]);
}

function summary(solve, ago) {
  const level = { optimal: "good", unchanged: "good", feasible: "warn", infeasible: "bad", undecided: "bad" }[solve.status] ?? "";
  return h("div", { class: "solve" },
    h("span", { class: `bdg ${level}`, "data-solve": solve.status }, solve.status),
    h("span", {}, `in ${solve.seconds < 1 ? `${Math.round(1000 * solve.seconds)} ms` : since(solve.seconds)}`),
    solve.gap !== undefined ? h("span", { class: "soft" }, solve.gap ? `gap ${(100 * solve.gap).toFixed(1)} %` : "proven, gap 0") : null,
    h("span", { class: "soft" }, `${ago} ago, ${solve.asked ? `asked for: ${solve.asked}` : "for the controller"}`));
}

function core(solve, meanings) {
  return h("div", { class: "core", role: "group", "aria-label": "Rules that clash" },
    h("h3", {}, solve.asked ? `“${solve.asked}” cannot be: these rules would clash` : "These rules cannot all hold at once"),
    h("ul", {}, solve.clashing.map(({ policy, rows }) => h("li", {},
      name(policy), document.createTextNode(": "), meanings.get(policy)?.meaning || "see where it is written",
      meanings.get(policy) ? h("span", { class: "soft" }, ` (${meanings.get(policy).where})`) : null,
      rows ? h("div", { class: "soft" }, `for example ${rows}`) : null))),
    h("p", { class: "soft" }, solve.asked ? "Nothing was changed. Add a host, undrain another one, or relax one of them." : "Nothing is moved for them until a host comes or one of them is relaxed."));
}

function objectives(list, meanings) {
  const cell = (value) => h("td", { class: "number" }, value === null || value === undefined ? "–" : String(value));
  return h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "objective"), h("th", { scope: "col", class: "number" }, "tier"), h("th", { scope: "col", class: "number" }, "before"), h("th", { scope: "col", class: "number" }, "now"), h("th", { scope: "col", class: "number" }, "bound"))),
    h("tbody", {}, list.flatMap((each) => [
      h("tr", { class: "objective" }, h("td", {}, name(each.name)), cell(each.tier), cell(each.before), cell(each.after), cell(each.bound)),
      h("tr", { class: "sentence" }, h("td", { colspan: "5", title: meanings.get(each.name)?.meaning ?? "" }, sentence(meanings.get(each.name)?.meaning ?? ""))),
    ])));
}

// What it comes to, without the reasons: those are in the list of all rules.
function sentence(meaning) {
  return meaning.split(/[;:]|[.] /)[0];
}

function rules(listing) {
  const hard = listing.policies.filter(({ kind }) => kind === "rule");
  return h("details", {},
    h("summary", {}, `${counted(hard.length, "rule")} and ${counted(listing.policies.length - hard.length, "objective")} of ${listing.pack}`),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "name"), h("th", { scope: "col" }, "meaning"))),
      h("tbody", {}, listing.policies.map((policy) => h("tr", {}, h("td", {}, name(policy.name), h("div", { class: "soft" }, policy.kind === "rule" ? "must hold" : `${policy.kind}, tier ${policy.tier}`)), h("td", {}, policy.meaning || h("span", { class: "soft" }, policy.where))))))));
}
