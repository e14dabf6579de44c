// Views over time, as the figures of the Rapid paper draw them: above, the size of the view with a dot for each member
// that installed it; below, a lane for each member, with a dot for each view it installed.  Agreement is one line of
// dots; flapping would be a saw.

import { clock, colours, counted, h, listed, prepared, show, since } from "../dom.js";
import { natural } from "../model.js";

export const RANGES = [["auto", 0], ["1 min", 60], ["10 min", 600], ["1 h", 3600], ["1 d", 86400], ["all", Infinity]];
const LEFT = 58;
const RIGHT = 18;
const SIZE_HEIGHT = 108;
const LANES_LABELLED = 16;

// Keeps what members told before they went: they cannot be asked any more.
export class History {
  constructor() {
    this.members = new Map();
    this.views = new Map();
  }

  take(answer) {
    for (const [member, views] of Object.entries(answer?.members ?? {})) {
      if (!this.members.has(member)) this.members.set(member, new Map());
      const kept = this.members.get(member);
      for (const view of views) {
        kept.set(`${view.id} ${view.time}`, view);
        const known = this.views.get(view.id) ?? { ...view, first: view.time, last: view.time, by: new Set(), changes: null };
        known.first = Math.min(known.first, view.time);
        known.last = Math.max(known.last, view.time);
        known.by.add(member);
        this.views.set(view.id, known);
      }
      while (kept.size > 400) kept.delete(kept.keys().next().value);
    }
    while (this.views.size > 1000) this.views.delete(this.views.keys().next().value);
  }

  // What changed is in the events; of a member's first view everybody is new, which says little.
  note(events) {
    for (const event of events) {
      if (event.kind !== "view" || typeof event.data?.id !== "string") continue;
      const known = this.views.get(event.data.id) ?? { epoch: event.data.epoch, id: event.data.id, size: event.data.size, first: event.time, last: event.time, by: new Set(), changes: null };
      known.changes = ["joined", "left", "evicted", "failed", "restarted", "updated"].flatMap((kind) => (event.data[kind]?.length ? [[kind, event.data[kind]]] : []));
      this.views.set(event.data.id, known);
    }
  }

  get ordered() {
    return [...this.views.values()].sort((one, other) => one.epoch - other.epoch || one.first - other.first);
  }
}

export class Timeline {
  constructor(place, ranges) {
    this.history = new History();
    this.range = "auto";
    this.chosen = -1;
    this.canvas = h("canvas", { role: "img", tabindex: "0" });
    this.caption = h("p", { class: "caption", role: "status" });
    this.rows = h("div", { class: "scroll" });
    this.table = h("details", {}, h("summary", {}, "Views one by one"), this.rows);
    place.append(this.canvas, this.caption, this.table);
    for (const [label] of RANGES) {
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: "range", value: label, checked: label === "auto" });
      input.addEventListener("change", () => {
        this.range = label;
        this.drawn = null;
      });
      ranges.append(h("label", {}, input, label));
    }
    this.canvas.addEventListener("pointermove", (event) => this.pick(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.choose(-1));
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const views = this.history.ordered;
      this.choose(this.chosen < 0 ? views.length - 1 : Math.max(0, Math.min(views.length - 1, this.chosen + step)));
    });
    addEventListener("resize", () => (this.drawn = null));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.drawn = null));
  }

  window(now) {
    const views = this.history.ordered;
    const first = views.length ? Math.min(...views.map((view) => view.first)) : now - 60;
    const chosen = RANGES.find(([label]) => label === this.range)[1];
    if (chosen && chosen !== Infinity) return [now - chosen, now];
    const whole = Math.max(20, (now - first) * 1.04);
    if (chosen === Infinity) return [now - whole, now];
    // By itself: all of it while that is short, then as much as holds the last few changes.
    if (whole <= 3600) return [now - whole, now];
    const recent = views.slice(-5)[0];
    return [now - Math.max(3600, (now - recent.first) * 1.1), now];
  }

  render(now, { departed, asked, size, problem }) {
    const views = this.history.ordered;
    if (!views.length) {
      this.canvas.hidden = this.table.hidden = true;
      this.caption.textContent = problem || "No view yet.";
      return;
    }
    this.canvas.hidden = this.table.hidden = false;
    this.now = now;
    this.facts = { departed, asked, size };
    this.draw(views, now, departed);
    this.describe(views, now);
    this.list(views, now);
  }

  // Of whoever told something, and of who went within the time shown, though it can tell nothing any more.
  lanes(from, departed) {
    const went = [...departed].filter(([, { at }]) => at >= from).map(([name]) => name);
    return [...new Set([...this.history.members.keys(), ...went])].sort(natural);
  }

  draw(views, now, departed) {
    const [from, to] = this.window(now);
    const lanes = this.lanes(from, departed);
    const labelled = lanes.length <= LANES_LABELLED;
    const pitch = labelled ? 14 : Math.max(1.5, Math.min(8, 180 / lanes.length));
    const lanesTop = SIZE_HEIGHT + 16;
    const height = lanesTop + pitch * lanes.length + 24;
    const { context, width } = prepared(this.canvas, height);
    const colour = colours();
    const across = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT - RIGHT);
    this.across = across;
    const inside = (time) => time >= from - 1 && time <= to + 1;
    const sizes = views.map((view) => view.size);
    const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
    const low = Math.max(0, least - Math.max(1, Math.ceil((most - least) * 0.15)));
    const high = most + Math.max(1, Math.ceil((most - low) * 0.12));
    const down = (size) => 26 + (1 - (size - low) / (high - low)) * (SIZE_HEIGHT - 34);

    context.font = `11px ${colour.text}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const size of ticks(low, high)) {
      context.strokeStyle = colour.line;
      line(context, LEFT, down(size), width - RIGHT, down(size));
      context.fillStyle = colour.soft;
      context.fillText(String(size), LEFT - 8, down(size));
    }
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    for (const [time, label] of moments(from, to, width)) {
      context.strokeStyle = colour.line;
      line(context, across(time), 20, across(time), height - 20);
      context.fillStyle = colour.soft;
      context.fillText(label, across(time), height - 6);
    }

    // The agreed size as a step line.
    context.strokeStyle = colour.accent;
    context.lineWidth = 1.5;
    context.beginPath();
    let last = null;
    for (const view of views) {
      const x = across(Math.max(from, Math.min(to, view.first)));
      if (last === null) context.moveTo(x, down(view.size));
      else {
        context.lineTo(x, down(last));
        context.lineTo(x, down(view.size));
      }
      last = view.size;
    }
    context.lineTo(across(to), down(last));
    context.stroke();
    context.lineWidth = 1;

    if (this.chosen >= 0 && views[this.chosen] && inside(views[this.chosen].first)) {
      context.strokeStyle = colour.ink;
      line(context, across(views[this.chosen].first), 4, across(views[this.chosen].first), height - 20);
    }

    lanes.forEach((member, index) => {
      const y = lanesTop + (index + 0.5) * pitch;
      const gone = departed.get(member);
      if (labelled) {
        context.textAlign = "right";
        context.textBaseline = "middle";
        context.font = `11px ${colour.mono}`;
        context.fillStyle = gone ? colour.bad : colour.soft;
        context.fillText(member.length > 7 ? `${member.slice(0, 6)}…` : member, LEFT - 8, y);
        context.strokeStyle = colour.line;
        line(context, LEFT, y, gone ? across(Math.max(from, gone.at)) : width - RIGHT, y);
      }
      const dot = labelled ? 3 : Math.max(0.8, pitch / 2.4);
      for (const view of this.history.members.get(member)?.values() ?? []) {
        if (!inside(view.time) || view.time < from) continue;
        context.fillStyle = colour.dot;
        context.globalAlpha = 0.8;
        round(context, across(view.time), y, dot);
        context.globalAlpha = 0.35;
        round(context, across(view.time), down(view.size), 3.2);
        context.globalAlpha = 1;
      }
      if (gone && inside(gone.at)) {
        context.strokeStyle = colour.bad;
        context.lineWidth = 1.6;
        const [x, half] = [across(gone.at), Math.max(2, Math.min(3.5, pitch))];
        line(context, x - half, y - half, x + half, y + half);
        line(context, x - half, y + half, x + half, y - half);
        context.lineWidth = 1;
      }
    });

    // Epochs, where there is room for them, the newest first.
    context.font = `600 11px ${colour.text}`;
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    context.fillStyle = colour.ink;
    let taken = Infinity;
    for (let index = views.length - 1; index >= 0; index--) {
      const view = views[index];
      const x = across(view.first);
      if (!inside(view.first) || view.first < from || taken - x < 26) continue;
      taken = x;
      // On the side where the line of sizes does not come from.
      const fell = index > 0 && views[index - 1].size > view.size;
      context.fillText(String(view.epoch), x, down(view.size) + (fell ? 17 : -8));
    }
    context.font = `11px ${colour.text}`;
    context.fillStyle = colour.soft;
    context.textAlign = "left";
    context.fillText("members in the view, with its epoch", LEFT, 9);
    const label = `${counted(views.length, "view")}; the latest is epoch ${views[views.length - 1].epoch} with ${counted(views[views.length - 1].size, "member")}`;
    if (this.canvas.getAttribute("aria-label") !== label) this.canvas.setAttribute("aria-label", label);
  }

  pick(x) {
    const views = this.history.ordered;
    let best = -1;
    for (let index = 0; index < views.length; index++) {
      const distance = Math.abs(this.across(views[index].first) - x);
      if (distance < 24 && (best < 0 || distance <= Math.abs(this.across(views[best].first) - x))) best = index;
    }
    this.choose(best);
  }

  choose(index) {
    if (index === this.chosen) return;
    this.chosen = index;
    this.drawn = null;
    if (this.facts) this.render(this.now, this.facts);
  }

  describe(views, now) {
    const index = this.chosen >= 0 && this.chosen < views.length ? this.chosen : views.length - 1;
    const view = views[index];
    const words = told(view, this.facts);
    show(this.caption, [view.id, words, since(now - view.first), this.chosen], () => [
      h("b", {}, `View ${view.epoch}`), ` of ${counted(view.size, "member")}, ${clock(view.first)}, ${since(Math.max(0, now - view.first))} ago: ${words}.`,
    ].map((part) => (typeof part === "string" ? document.createTextNode(part) : part)));
  }

  list(views, now) {
    const rows = views.slice(-60).reverse().map((view) => [view.epoch, view.size, clock(view.first), told(view, this.facts)]);
    show(this.rows, rows, () => h("table", {},
      h("thead", {}, h("tr", {}, ["epoch", "members", "when", "what changed"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, String(cell))))))));
  }
}

function told(view, { asked, size }) {
  const changes = view.changes?.map(([kind, members]) => (kind === "joined" && members.length === view.size && view.size > 1 ? "the first view of the agent that tells of it" : `${kind} ${listed(members, 5)}`)).join("; ");
  const spread = view.by.size > 1 ? `, installed by ${view.by.size}${asked < size ? ` of the ${asked} that were asked` : ""} within ${Math.max(1, Math.round(1000 * (view.last - view.first)))} ms` : "";
  return `${changes || "members as before this agent came"}${spread}`;
}

function line(context, x, y, toX, toY) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}

function round(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

function ticks(low, high) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((each) => (high - low) / each <= 4) ?? 10000;
  const found = [];
  for (let size = Math.ceil(low / step) * step; size <= high; size += step) found.push(size);
  return found;
}

function moments(from, to, width) {
  const wanted = Math.max(2, Math.floor(width / 130));
  const step = [2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 604800].find((each) => (to - from) / each <= wanted) ?? 2592000;
  const found = [];
  for (let ago = 0; ago <= to - from; ago += step) found.push([to - ago, ago === 0 ? "now" : `−${since(ago).replace(".0", "")}`]);
  return found;
}
