// The last hour as the agents measured it: a small plot for each quantity, a line for each host.

import { bytes, colours, h, prepared, show, since } from "../dom.js";

const HEIGHT = 104;
const [LEFT, RIGHT, TOP, BOTTOM] = [56, 6, 8, 18];

const rate = (unit) => (value) => `${short(value)}${unit}`;
const seconds = (value) => (value < 1 ? `${short(1000 * value)} ms` : `${short(value)} s`);

const QUANTITIES = [
  { name: "records", title: "Records taken", told: rate("/s") },
  { name: "reads", title: "Reads answered", told: rate("/s") },
  { name: "append_seconds", title: "An append through the agent takes", told: seconds },
  { name: "failed_appends", title: "Appends through the agent that failed", told: rate("/s"), rare: true },
  { name: "operations", title: "Operations of the servers", told: rate("/s") },
  { name: "engine_seconds", title: "An answer of a server takes", told: seconds },
  { name: "engine_bytes", title: "Data in the servers", told: (value) => bytes(Math.round(value)) },
  { name: "sync_seconds", title: "A write to the disk takes", told: seconds },
  { name: "synced_bytes", title: "Written to the disk", told: (value) => `${bytes(Math.round(value))}/s` },
  { name: "network_bytes", title: "Membership's network", told: (value) => `${bytes(Math.round(value))}/s` },
  { name: "disk_used", title: "Disk used", told: (value) => `${Math.round(100 * value)} %`, most: 1 },
];

function short(value) {
  return value >= 100 || value === 0 ? String(Math.round(value)) : value >= 1 ? value.toFixed(1) : value.toPrecision(2);
}

// Of one agent's measurements those of one quantity, as [seconds ago, value], oldest first.
function points(measured, quantity, now) {
  const series = measured?.series ?? {};
  const values = quantity === "disk_used" ? (series.disk_free ?? []).map((free, index) => (free === null || !series.disk_total?.[index] ? null : 1 - free / series.disk_total[index])) : series[quantity] ?? [];
  // Each host's clock is its own: its last measurement was a moment ago, whatever it calls that.
  const late = Math.min(Math.max(0, now - (measured?.end ?? now)), measured?.interval ?? 0);
  return values.map((value, index) => [late + (values.length - 1 - index) * measured.interval, value]).filter(([ago, value]) => ago <= 3600 && Number.isFinite(value));
}

export class Plots {
  constructor(place) {
    this.place = place;
    this.pointed = null; // seconds ago, below the pointer
    this.panels = new Map();
    place.addEventListener("pointermove", (event) => this.point(event));
    place.addEventListener("pointerleave", () => this.point(null));
  }

  // `measured`: by host.
  render({ measured, problem, none = "Nothing is measured yet; the agents do so every ten seconds.", now }) {
    this.facts = { measured, problem, none, now };
    const lines = QUANTITIES.map((quantity) => [quantity, Object.entries(measured ?? {}).map(([host, each]) => [host, points(each, quantity.name, now)]).filter(([, found]) => found.length)]);
    // What should never happen has a plot once it does.
    const drawn = lines.filter(([{ rare }, hosts]) => (rare ? hosts.some(([, found]) => found.some(([, value]) => value)) : hosts.length));
    show(this.place, drawn.length ? drawn.map(([{ name }]) => name) : ["none", problem, none], () => this.build(drawn, problem, none));
    for (const [quantity, hosts] of drawn) this.draw(quantity, hosts);
  }

  build(drawn, problem, none) {
    this.panels.clear();
    if (!drawn.length) return h("p", { class: problem ? "problem" : "nothing" }, problem || none);
    return h("div", { class: "plots" }, drawn.map(([{ name, title }]) => {
      const canvas = h("canvas", { role: "img", "data-quantity": name, "aria-label": title });
      const now = h("span", { class: "soft" });
      this.panels.set(name, { canvas, now });
      return h("figure", {}, h("figcaption", {}, h("span", {}, title), now), canvas);
    }));
  }

  point(event) {
    const canvas = event?.target.closest?.("canvas");
    const width = (canvas?.clientWidth ?? 0) - LEFT - RIGHT;
    this.pointed = width > 0 ? Math.max(0, Math.min(1, 1 - (event.offsetX - LEFT) / width)) * this.span : null;
    if (this.facts) this.render(this.facts);
  }

  // As much as there is, an hour at most.
  get span() {
    const longest = Math.max(0, ...Object.values(this.facts.measured ?? {}).flatMap(({ series, interval }) => Object.values(series).map((values) => values.length * interval)));
    return Math.min(3600, Math.max(60, longest));
  }

  draw({ name, title, told, most }, hosts) {
    const { canvas, now } = this.panels.get(name);
    const { context, width } = prepared(canvas, HEIGHT);
    const colour = colours();
    const span = this.span;
    const high = most ?? round(Math.max(...hosts.flatMap(([, found]) => found.map(([, value]) => value))));
    const across = (ago) => LEFT + (1 - ago / span) * (width - LEFT - RIGHT);
    const down = (value) => TOP + (1 - value / high) * (HEIGHT - TOP - BOTTOM);
    context.font = `10.5px ${colour.text}`;
    context.fillStyle = colour.soft;
    context.strokeStyle = colour.line;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of [0, high / 2, high]) {
      context.beginPath();
      context.moveTo(LEFT, down(value));
      context.lineTo(width - RIGHT, down(value));
      context.stroke();
      context.fillText(told(value), LEFT - 5, down(value));
    }
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.fillText(`−${since(span).replace(".0", "")}`, LEFT, HEIGHT - 4);
    context.textAlign = "right";
    context.fillText("now", width - RIGHT, HEIGHT - 4);
    const shown = this.pointed === null ? null : hosts.map(([host, found]) => [host, nearest(found, this.pointed)]).filter(([, point]) => point);
    context.strokeStyle = colour.dot;
    for (const [, found] of hosts) {
      context.globalAlpha = hosts.length > 1 ? 0.6 : 1;
      context.lineWidth = 1.3;
      line(context, found, across, down);
      context.globalAlpha = 1;
    }
    context.lineWidth = 1;
    if (shown?.length) {
      context.strokeStyle = colour.soft;
      context.beginPath();
      context.moveTo(across(this.pointed), TOP);
      context.lineTo(across(this.pointed), HEIGHT - BOTTOM);
      context.stroke();
    }
    const words = (shown ?? hosts.map(([host, found]) => [host, found[found.length - 1]])).map(([host, [, value]]) => [host, value]).sort(([, one], [, other]) => other - one);
    const [highest, lowest] = words.length ? [told(words[0][1]), told(words[words.length - 1][1])] : ["", ""];
    const range = highest === lowest ? highest : `${lowest} to ${highest} (${words[0][0]})`;
    const text = shown ? `${since(this.pointed)} ago: ${range}` : range;
    if (now.textContent !== text) now.textContent = text;
    canvas.setAttribute("aria-label", `${title}, the last ${since(span)}: now ${range}`);
  }
}

// The next number above that is easily halved and read.
function round(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((each) => each * power).find((each) => each >= value);
}

// A gap in what was measured is a gap in the line.
function line(context, found, across, down) {
  context.beginPath();
  let before = null;
  for (const [ago, value] of found) {
    if (before !== null && before - ago < 25) context.lineTo(across(ago), down(value));
    else {
      context.moveTo(across(ago) - 1, down(value)); // one by itself is a dash
      context.lineTo(across(ago) + 1, down(value));
    }
    before = ago;
  }
  context.stroke();
}

function nearest(found, ago) {
  let best = null;
  for (const point of found) if (Math.abs(point[0] - ago) < 15 && (!best || Math.abs(point[0] - ago) < Math.abs(best[0] - ago))) best = point;
  return best;
}
