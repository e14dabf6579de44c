// The pages of a stream and of a map, to read: the last records, the first keys.

import { bytes, clean, counted, factList, h, name, show, table } from "../dom.js";

const RECORDS = 50;
const KEYS = 200;
const LONGEST = 400; // bytes of a value

// Text as far as it is some; else bytes.
function value({ text, hex, bytes: size }) {
  const cut = (shown) => (size > LONGEST ? `${shown}…` : shown);
  return text.includes("\ufffd") ? h("code", { class: "soft", title: "bytes that are no text" }, cut(hex)) : h("code", {}, clean(cut(text)));
}

class DataPage {
  constructor(kind, text, path, title) {
    this.kind = kind;
    this.name = text;
    this.path = path;
    this.facts = h("div", {});
    this.rows = h("div", {});
    this.element = [
      h("section", { class: "panel", "aria-label": `${kind} ${text}` }, this.facts),
      h("section", { class: "panel", "aria-label": title }, h("header", {}, h("h2", {}, title)), this.rows),
    ];
  }

  get title() {
    return this.name;
  }

  resources() {
    return { data: { path: this.path, every: 3000 } };
  }

  renderFacts(entry, growth, more) {
    const facts = [
      ["records", entry ? entry.records ?? "not known" : null], ["grows by", growth.words(this.kind, this.name)], ["takes", entry && entry.bytes !== null ? `about ${bytes(entry.bytes)}, in each of its copies` : null], ...more,
    ].filter(([, told]) => told !== null);
    show(this.facts, facts, () => [h("div", { class: "solve" }, h("h2", {}, name(this.name)), h("span", { class: "soft" }, this.kind)), factList(facts)]);
  }

  renderRows({ data, error }, rows, build, none) {
    show(this.rows, [Boolean(data), rows, error], () => [
      rows.length ? build() : error ? null : h("p", { class: "nothing" }, data ? none : "Asking the agent …"),
      error ? h("p", { class: "problem" }, error) : null,
    ]);
  }
}

export class StreamPage extends DataPage {
  constructor(text) {
    super("stream", text, `/v1/log/${encodeURIComponent(text)}?limit=${RECORDS}&most=${LONGEST}`, `The last ${RECORDS} records, the newest first`);
  }

  render({ held, growth, streams }) {
    const found = held("data");
    const records = [...(found.data?.records ?? [])].reverse();
    this.renderFacts(streams?.streams.find((each) => each.name === this.name), growth, [["last address", records[0]?.address ?? null], ["shown", found.data?.more ? `the last ${counted(records.length, "record")}: they are long` : null]]);
    this.renderRows(found, records, () => table(["address", "bytes", "record"], records.map((record) => [record.address, record.bytes, value(record)]), [0, 1]), "It has no record.");
  }
}

export class MapPage extends DataPage {
  constructor(text) {
    super("map", text, `/v1/map/${encodeURIComponent(text)}?limit=${KEYS}&most=${LONGEST}`, "Keys and values");
  }

  render({ held, growth, streams }) {
    const found = held("data");
    const entries = found.data?.entries ?? [];
    const keys = found.data?.keys ?? null;
    this.renderFacts(streams?.maps.find((each) => each.name === this.name), growth, [["keys", keys], ["shown", keys > entries.length ? `the first ${counted(entries.length, "key")}` : null]]);
    this.renderRows(found, entries, () => table(["key", "bytes", "value"], entries.map((entry) => [h("code", {}, entry.key), entry.bytes, value(entry)]), [1]), "It has no key.");
  }
}
