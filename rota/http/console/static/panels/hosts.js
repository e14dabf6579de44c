// Hosts by rack with their copies and roles: cards for some, one cell each for many.

import { counted, h, listed, name, pageLink, show, since } from "../dom.js";
import { DENSE, stateOf } from "../model.js";

const SIGNS = { controller: "C", sequencer: "S", "layout server": "L" };
const COPIES_SHOWN = 60;

export function matches(host, rack, wanted) {
  if (!wanted) return true;
  const words = [host.name, rack, host.address, stateOf(host), ...host.roles, ...(host.tags ?? [])];
  return words.some((word) => word.toLowerCase().includes(wanted)) || [...host.copies, ...host.lost].some(({ key }) => key.toLowerCase().includes(wanted));
}

export class Hosts {
  constructor(place) {
    this.place = place;
    this.cards = new Map();
    this.wanted = "";
    this.chosen = null;
    place.addEventListener("pointerover", (event) => this.light(event.target.closest?.(".copy")?.dataset.segment));
    place.addEventListener("pointerleave", () => this.light(undefined));
    place.addEventListener("keydown", (event) => this.walk(event));
    place.addEventListener("click", (event) => {
      const cell = event.target.closest?.(".cell");
      if (cell) location.hash = `#/host/${encodeURIComponent(cell.dataset.host)}`;
    });
    for (const kind of ["focusin", "pointerover"]) {
      place.addEventListener(kind, (event) => this.choose(event.target.closest?.(".cell")));
    }
  }

  find(text) {
    this.wanted = text.trim().toLowerCase();
  }

  light(segment) {
    if (segment === this.lit) return;
    this.lit = segment;
    for (const chip of this.place.querySelectorAll(".copy.lit")) chip.classList.remove("lit");
    if (segment === undefined) return;
    for (const chip of this.place.querySelectorAll(".copy[data-segment]")) chip.classList.toggle("lit", chip.dataset.segment === segment);
  }

  render(groups, { problem, now, store, departed }) {
    this.place.classList.toggle("storeless", !store);
    const all = groups.reduce((sum, { hosts }) => sum + hosts.length, 0);
    if (!all) {
      show(this.place, ["none", problem], () => h("p", { class: problem ? "problem" : "nothing" }, problem || "No members are known yet."));
      this.cards.clear();
      return;
    }
    const dense = all > DENSE;
    const outline = groups.map(({ rack, hosts }) => [rack, hosts.map((host) => host.name)]);
    const focused = this.place.contains(document.activeElement) ? document.activeElement.dataset.host : undefined;
    const rebuilt = show(this.place, [dense, outline], () => this.build(groups, dense));
    if (rebuilt) {
      this.drawn = new Map();
      this.cards.get(focused)?.focus(); // hosts come and go; whoever walks the cells with the keys stays where they are
    }
    this.most = Math.max(1, ...groups.flatMap(({ hosts }) => hosts.map((host) => host.copies.length)));
    let found = 0;
    for (const { rack, hosts } of groups) {
      const present = hosts.filter((host) => host.present).length;
      const copies = hosts.reduce((sum, host) => sum + host.copies.length, 0);
      this.heads.get(rack).textContent = [present ? counted(present, "host") : "no host left", copies ? counted(copies, "copy", "copies") : ""].filter(Boolean).join(", ");
      for (const host of hosts) {
        const card = this.cards.get(host.name);
        const gone = host.present ? "" : Math.floor(now - (host.at ?? now));
        const matched = matches(host, rack, this.wanted);
        found += matched;
        const key = JSON.stringify([host, gone, this.most, matched, this.wanted && !dense]);
        if (this.drawn.get(host.name) === key) continue;
        this.drawn.set(host.name, key);
        if (dense) this.cell(card, host, matched);
        else this.card(card, host, matched, now);
      }
    }
    const shown = new Set(groups.flatMap(({ hosts }) => hosts.map(({ name: each }) => each)));
    this.remember([...departed].filter(([each]) => !shown.has(each)), now);
    this.note.textContent = this.wanted ? `${counted(found, "host")} of ${all} match “${this.wanted}”.` : "";
    this.groups = groups;
    if (dense) this.describe();
  }

  build(groups, dense) {
    this.cards.clear();
    this.heads = new Map();
    this.note = h("p", { class: "soft", role: "status" });
    this.earlier = h("p", { class: "earlier soft", "data-earlier": "" });
    const racks = groups.map(({ rack, hosts }) => {
      const head = h("span", { class: "soft" });
      this.heads.set(rack, head);
      const list = h("ul", { class: dense ? "cells" : "", "aria-label": rack ? `rack ${rack}` : "without a known rack" });
      for (const host of hosts) {
        const item = h("li", dense ? {} : { class: "host", "data-host": host.name });
        const card = dense ? h("button", { class: "cell", "data-host": host.name, tabindex: "-1" }) : item;
        if (dense) item.append(card);
        this.cards.set(host.name, card);
        list.append(item);
      }
      return h("section", { class: "rack", "data-rack": rack }, h("h3", {}, rack ? name(rack) : h("span", { class: "soft" }, hosts.some((host) => host.present) ? "no rack" : "gone; its rack is not known here"), head), list);
    });
    this.details = h("p", { class: "chosen soft", role: "status" });
    if (dense) this.cards.values().next().value?.setAttribute("tabindex", "0");
    return [
      h("div", { class: dense ? "racks dense" : "racks" }, racks),
      dense ? this.details : null,
      h("p", { class: "legend" },
        dense
          ? [h("span", {}, "C controller"), h("span", {}, "S sequencer"), h("span", {}, "L layout server"), h("span", {}, "× gone"), h("span", {}, "? suspected"), h("span", {}, "– drained"), h("span", {}, "bar: copies held"), h("span", {}, "arrow keys move between hosts")]
          : [
              h("span", {}, h("span", { class: "copy primary" }, "s00"), "primary"),
              h("span", {}, h("span", { class: "copy" }, "s00"), "replica"),
              h("span", {}, h("span", { class: "copy making" }, "s00"), "being copied"),
              h("span", {}, h("span", { class: "copy lost" }, "s00"), "lost"),
            ]),
      this.earlier,
      this.note,
    ];
  }

  // Who went longer ago.
  remember(departed, now) {
    const words = departed.sort(([, one], [, other]) => other.at - one.at).map(([host, { how, at, rack }]) => [host, `${how === "evicted" ? "was evicted" : how} ${since(now - at)} ago`, rack]);
    show(this.earlier, words, () => (words.length ? [h("b", {}, "Gone: "), words.slice(0, 12).flatMap(([host, how, rack], index) => [index ? "; " : "", pageLink("host", host), ` ${rack ? `of rack ${rack} ` : ""}${how}`]), words.length > 12 ? `; and ${words.length - 12} more` : ""].flat().map((part) => (part instanceof Node ? part : document.createTextNode(part))) : []));
  }

  card(card, host, matched, now) {
    const state = stateOf(host);
    const [sign, kind] = !host.present ? ["✕", "out"] : host.doubt === "silent" ? ["✕", "out"] : host.doubt ? ["?", "doubt"] : ["●", "in"];
    card.className = `host${host.present ? "" : " gone"}${host.drained ? " drained" : ""}${host.doubt ? " suspected" : ""}${matched ? "" : " unmatched"}`;
    const label = host.present ? state : host.at ? `${state} ${since(Math.max(0, now - host.at))} ago` : state;
    const primaries = host.copies.filter(({ role }) => role === "primary").length;
    const badges = host.roles.map((role) => h("span", { class: "bdg role" }, role));
    if (state !== "member") badges.push(h("span", { class: `bdg ${host.present ? "warn" : "bad"}` }, label));
    const extra = (host.tags ?? []).filter((tag) => !tag.startsWith("rack="));
    const held = host.present ? host.copies : host.lost;
    const copies = held.slice(0, COPIES_SHOWN).map((copy) => chip(copy, this.wanted));
    if (held.length > COPIES_SHOWN) copies.push(h("span", { class: "more" }, `and ${held.length - COPIES_SHOWN} more`));
    card.replaceChildren(
      h("div", { class: "line", title: [host.address, ...extra].filter(Boolean).join("  ") },
        h("span", { class: `sign ${kind}`, "aria-hidden": "true" }, sign), pageLink("host", host.name),
        h("span", { class: "unseen" }, state),
        h("span", { class: "count" }, host.copies.length ? `${counted(host.copies.length, "copy", "copies")}${primaries ? `, ${primaries} primary` : ""}` : host.lost.length ? `${counted(host.lost.length, "copy", "copies")} lost` : "no copies")),
      h("div", { class: "roles" }, badges, extra.map((tag) => h("span", { class: "bdg", title: tag }, h("bdi", {}, tag)))),
      copies.length ? h("div", { class: "copies" }, copies) : "",
    );
  }

  cell(cell, host, matched) {
    const state = stateOf(host);
    cell.className = `cell${host.present ? "" : " gone"}${host.drained ? " drained" : ""}${host.doubt ? " suspected" : ""}${matched ? "" : " unmatched"}`;
    cell.textContent = !host.present ? "×" : host.doubt ? "?" : host.drained ? "–" : (SIGNS[host.roles[0]] ?? "");
    cell.style.setProperty("--load", `${(100 * host.copies.length) / this.most}%`);
    cell.setAttribute("aria-label", `${host.name}, ${state}${host.roles.length ? `, ${host.roles.join(", ")}` : ""}, ${counted(host.copies.length, "copy", "copies")}`);
  }

  choose(cell) {
    if (!cell || cell.dataset.host === this.chosen) return;
    this.chosen = cell.dataset.host;
    this.describe();
  }

  describe() {
    const [rack, host] = this.groups?.flatMap(({ rack, hosts }) => hosts.map((each) => [rack, each])).find(([, each]) => each.name === this.chosen) ?? [];
    if (!host) {
      show(this.details, "none", () => "Choose a host to see what it holds.");
      return;
    }
    show(this.details, host, () => [
      pageLink("host", host.name), document.createTextNode(" "), h("span", {}, `${stateOf(host)}${rack ? ` in rack ${rack}` : ""}, ${host.address || "no address"}`),
      host.roles.length ? h("span", {}, `, ${host.roles.join(", ")}`) : null,
      h("span", {}, host.copies.length ? `, holds ${listed(host.copies.map(({ key, role }) => (role === "primary" ? `${key} (primary)` : key)), 14)}` : ", holds no copy"),
    ]);
  }

  walk(event) {
    const cell = event.target.closest?.(".cell");
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };
    if (!cell || !(event.key in steps)) return;
    event.preventDefault();
    const cells = [...this.cards.values()];
    const next = cells[Math.min(cells.length - 1, Math.max(0, cells.indexOf(cell) + steps[event.key]))];
    cell.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
}

function chip(copy, wanted) {
  const lost = copy.state === "gone" || copy.state === "lost";
  const making = !lost && copy.state !== "in_sync";
  const kind = lost ? "lost" : making ? "making" : copy.role === "primary" ? "primary" : "";
  const words = `${copy.key}, ${copy.role}, ${String(copy.state).replace("_", " ")}${copy.slots ? `, ${counted(copy.slots, "slot")}` : ""}`;
  const lit = wanted && copy.key.toLowerCase() === wanted ? " lit" : "";
  return pageLink("segment", copy.key, { class: `copy ${kind}${lit}`, "data-segment": copy.key, title: words, tabindex: "-1", "aria-label": words });
}
