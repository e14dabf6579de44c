// Building elements.  Whatever comes from the cluster (names, tags, texts) is hostile until shown otherwise: it only
// ever becomes text, or the value of an attribute that cannot do anything.

const PLAIN = new Set(["class", "title", "role", "id", "datetime", "colspan", "scope", "tabindex", "lang", "dir", "hidden", "type"]);

// Controls and directional overrides can make one name look like another.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

export function clean(text, longest = 2000) {
  const shown = String(text ?? "").replace(INVISIBLE, "\ufffd");
  return shown.length > longest ? `${shown.slice(0, longest)}…` : shown;
}

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (!PLAIN.has(name) && !name.startsWith("aria-") && !name.startsWith("data-")) throw new Error(`attribute ${name}`);
    element.setAttribute(name, value === true ? "" : clean(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return element;
}

export function name(text) {
  const parts = clean(text).split(/(?<=_)/); // long names of policies may be broken after an underscore
  return h("bdi", { class: "name" }, parts.flatMap((part, index) => (index ? [document.createElement("wbr"), part] : [part])));
}

// Text in which commands stand in backticks.
export function worded(text) {
  return clean(text).split(/`([^`]+)`/).map((part, index) => (index % 2 ? h("code", {}, part) : document.createTextNode(part)));
}

// Replaces the children of `parent` only when `key` changed: what is unchanged keeps focus, selection and scroll.
const shown = new WeakMap();
export function show(parent, key, build) {
  const text = JSON.stringify(key);
  if (shown.get(parent) === text) return false;
  shown.set(parent, text);
  parent.replaceChildren(...[build()].flat(Infinity).filter(Boolean));
  return true;
}

export function listed(words, most = 6) {
  const more = words.length - most;
  return words.slice(0, most).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

// A link to another agent's console, if its address is one that this browser can mean the same by.
export function consoleLink(address, text, page = "") {
  let url = null;
  try {
    url = new URL(String(address ?? ""));
  } catch {
    // it does not say where it answers
  }
  if (!url || !["http:", "https:"].includes(url.protocol) || url.username || url.password) return null;
  const local = (host) => host === "localhost" || host === "[::1]" || /^127\./.test(host);
  if (local(url.hostname) && !local(location.hostname)) return null; // its own loopback, which is not ours
  const link = h("a", {}, text);
  link.href = `${url.origin}/${page}`;
  return link;
}

// A link to the page of a host, a segment, a stream or a map, in this console.
export function pageLink(kind, text, attributes = {}) {
  const link = h("a", attributes, name(text));
  link.href = `#/${kind}/${encodeURIComponent(text)}`;
  return link;
}

// What is known of something, term by term; what is null is left out.
export function factList(facts) {
  return h("dl", { class: "fact-list" }, facts.filter(([, value]) => value !== null && value !== undefined).map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value instanceof Node ? value : h("bdi", {}, value)))));
}

// A column with nothing in any row is left out.
export function table(heads, rows, numbers = []) {
  const isThere = (cell) => cell !== null && cell !== undefined && cell !== "";
  const shown = heads.map((_, index) => index).filter((index) => rows.some((row) => isThere(row[index])));
  const kind = (index) => (numbers.includes(index) ? { class: "number" } : {});
  return h("div", { class: "scroll tall" }, h("table", {},
    h("thead", {}, h("tr", {}, shown.map((index) => h("th", { scope: "col", ...kind(index) }, heads[index])))),
    h("tbody", {}, rows.map((row) => h("tr", {}, shown.map((index) => h("td", kind(index), !isThere(row[index]) ? "–" : row[index] instanceof Node ? row[index] : String(row[index]))))))));
}

export function counted(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

// Times.

export function since(seconds) {
  if (!Number.isFinite(seconds)) return "never";
  if (seconds < 0) return "in the future";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function clock(unix, { thousandths = false } = {}) {
  const date = new Date(unix * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return thousandths ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

export function day(unix) {
  return new Date(unix * 1000).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

export function bytes(count) {
  let value = count;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB") return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return "";
}

// Colours as the style sheet has them now, for what is drawn.

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (property) => style.getPropertyValue(property).trim();
  return {
    ink: of("--ink"), soft: of("--soft"), line: of("--line"), panel: of("--panel"), sunk: of("--sunk"),
    accent: of("--accent"), tint: of("--accent-tint"), good: of("--good"), warn: of("--warn"), bad: of("--bad"), dot: of("--dot"),
    mono: of("--mono"), text: of("--text"),
  };
}

// A canvas of the wanted height in CSS pixels, cleared, at the screen's own resolution.
export function prepared(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 300;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width };
}
