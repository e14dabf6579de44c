// Suspicions: members on a ring in the order of the first of the K rings, and an edge from each that accuses to whom
// it accuses; below it tallies, votes, and why there is no new view yet.

import { colours, counted, h, listed, name, prepared, show, since } from "../dom.js";

const LABELS = 24;

export class Ring {
  constructor(panel, place) {
    this.panel = panel;
    this.canvas = h("canvas", { role: "img", "aria-label": "nobody is accused" });
    this.words = h("div", {});
    place.append(this.canvas, this.words);
  }

  // Only where somebody is suspected, votes or comes is there anything to see.
  render({ members, reading, problem }) {
    const troubled = reading && reading.suspects.length + reading.own.filter(({ failed }) => failed).length + reading.joiners_in_all + reading.votes.length > 0;
    this.panel.hidden = !troubled && !problem;
    this.canvas.hidden = !troubled;
    if (!troubled) {
      show(this.words, ["none", problem], () => h("p", { class: "problem" }, problem));
      return;
    }
    this.draw([...members].sort((one, other) => one.place - other.place), reading);
    show(this.words, { ...reading, suspects: reading.suspects.map((each) => ({ ...each, age: Math.round(each.age) })) }, () => [
      reading.reason ? h("p", { "data-reason": "" }, h("b", {}, "Why no new view yet: "), reading.reason, ".") : null,
      reading.suspects.length ? h("ul", { class: "tally" }, reading.suspects.slice(0, 20).map((suspect) => tally(suspect, reading))) : null,
      reading.suspects.length > 20 ? h("p", { class: "soft" }, `and ${reading.suspects.length - 20} more`) : null,
      reading.votes.length ? h("ul", { class: "tally" }, reading.votes.slice(0, 6).map((vote) => votes(vote, reading))) : null,
      reading.joiners_in_all ? h("p", { class: "soft" }, `On the way in: ${listed(reading.joiners.map((joiner) => `${joiner.name} (${joiner.reports} of ${reading.rings})`), 8)}${reading.joiners_in_all > 8 ? `, ${reading.joiners_in_all} in all` : ""}.`) : null,
      reading.own.length ? h("p", { class: "soft" }, `${reading.agent}'s own probes: ${listed(reading.own.map((each) => `${each.name} ${each.failed ? "found faulty" : "missed some"}`), 8)}.`) : null,
    ]);
  }

  draw(members, reading) {
    const height = 250;
    const { context, width } = prepared(this.canvas, height);
    const colour = colours();
    const labels = members.length <= LABELS;
    const radius = height / 2 - 26;
    const [x, y] = [width / 2, height / 2];
    const places = new Map(members.map((member, index) => {
      const angle = (2 * Math.PI * index) / members.length - Math.PI / 2;
      return [member.name, { x: x + radius * Math.cos(angle), y: y + radius * Math.sin(angle), angle }];
    }));
    context.strokeStyle = colour.line;
    context.lineWidth = 1;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.stroke();
    const suspects = new Map(reading.suspects.map((suspect) => [suspect.name, suspect]));
    let edges = 0;
    for (const suspect of reading.suspects) {
      const to = places.get(suspect.name);
      if (!to) continue;
      for (const accuser of suspect.accusers) {
        const from = places.get(accuser.name);
        if (!from) continue;
        edges += 1;
        arrow(context, from, to, { x, y }, suspect.standing === "noise" ? colour.soft : colour.warn, Math.min(3, 0.8 + accuser.rings.length / 3), suspect.standing === "noise" ? [3, 3] : []);
      }
    }
    const me = places.get(reading.agent);
    for (const each of reading.own) {
      const to = places.get(each.name);
      if (me && to && !suspects.has(each.name)) arrow(context, me, to, { x, y }, colour.soft, 1, [2, 3]);
    }
    const size = members.length > 200 ? 1.6 : members.length > 60 ? 2.6 : 4;
    context.font = `11px ${colour.mono}`;
    context.textBaseline = "middle";
    for (const [label, spot] of places) {
      const suspect = suspects.get(label);
      context.fillStyle = suspect ? (suspect.standing === "noise" ? colour.soft : colour.bad) : colour.accent;
      if (suspect) {
        const half = Math.max(size + 1, 4.5); // a square, so that the colour is not the only sign
        context.fillRect(spot.x - half, spot.y - half, 2 * half, 2 * half);
      } else {
        context.beginPath();
        context.arc(spot.x, spot.y, size, 0, 2 * Math.PI);
        context.fill();
      }
      if (labels || suspect) {
        const right = Math.cos(spot.angle);
        context.textAlign = right > 0.25 ? "left" : right < -0.25 ? "right" : "center";
        context.fillStyle = suspect ? colour.bad : colour.soft;
        const shown = label.length > 12 ? `${label.slice(0, 11)}…` : label;
        context.fillText(shown, spot.x + 11 * right, spot.y + 15 * Math.sin(spot.angle));
      }
    }
    const words = reading.suspects.length ? `${counted(edges, "accusation")}: ${listed(reading.suspects.map((each) => `${each.name} by ${each.accusers.map((accuser) => accuser.name).join(" ")}`), 5)}` : "nobody is accused";
    const label = `${counted(members.length, "member")} on a ring; ${words}`;
    if (this.canvas.getAttribute("aria-label") !== label) this.canvas.setAttribute("aria-label", label);
  }
}

function arrow(context, from, to, centre, colour, width, dashes) {
  const bend = { x: (from.x + to.x) / 2 * 0.5 + centre.x * 0.5, y: (from.y + to.y) / 2 * 0.5 + centre.y * 0.5 };
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(from.x, from.y);
  context.quadraticCurveTo(bend.x, bend.y, to.x, to.y);
  context.stroke();
  context.setLineDash([]);
  const angle = Math.atan2(to.y - bend.y, to.x - bend.x);
  const tip = { x: to.x - 6 * Math.cos(angle), y: to.y - 6 * Math.sin(angle) };
  context.beginPath();
  context.moveTo(tip.x, tip.y);
  context.lineTo(tip.x - 8 * Math.cos(angle - 0.4), tip.y - 8 * Math.sin(angle - 0.4));
  context.lineTo(tip.x - 8 * Math.cos(angle + 0.4), tip.y - 8 * Math.sin(angle + 0.4));
  context.fill();
}

function tally(suspect, reading) {
  const bars = [];
  for (let ring = 0; ring < reading.rings; ring++) {
    const told = ring < suspect.reports ? "told" : ring < suspect.tally ? "implied" : "";
    const edge = ring === reading.low - 1 ? " low" : ring === reading.high - 1 ? " high" : "";
    bars.push(h("i", { class: told + edge }));
  }
  const request = { leave: "leaves by itself", evict: "an operator evicts it" }[suspect.request];
  return h("li", {},
    h("div", { class: "line" }, name(suspect.name), h("span", { class: `bdg ${suspect.standing === "noise" ? "" : "warn"}` }, request ?? suspect.standing), h("span", { class: "soft" }, `${suspect.tally} of ${reading.rings} reports, needs ${reading.high}; for ${since(suspect.age)}`)),
    h("div", { class: "reports", "aria-hidden": "true" }, bars),
    h("div", { class: "soft" }, `by ${listed(suspect.accusers.map((accuser) => `${accuser.name} (${counted(accuser.rings.length, "ring")})`), 10)}`));
}

function votes(vote, reading) {
  const words = [
    vote.removes.length ? `without ${listed(vote.removes)}` : "", vote.joins.length ? `with ${listed(vote.joins)}` : "",
    vote.updates.length ? `new tags of ${listed(vote.updates)}` : "",
  ].filter(Boolean);
  return h("li", {}, h("b", {}, `${vote.votes} of ${reading.fast_quorum} votes`), ` ${vote.known ? words.join(", ") || "an empty cut" : "for a cut this member has not seen"}${vote.own ? " (its own proposal too)" : ""}`);
}
