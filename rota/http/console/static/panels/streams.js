// The streams of the log and the maps in it: how much there is of each, and how fast it grows.

import { bytes, h, pageLink, show, table } from "../dom.js";

const SHOWN = 100;

// Rates, from what the agent told now and before.
export class Growth {
  constructor() {
    this.at = null;
    this.records = new Map();
    this.rates = new Map();
  }

  take(answer, at) {
    if (!answer || at === this.at) return;
    for (const [kind, list] of [["stream", answer.streams], ["map", answer.maps]]) {
      for (const { name, records } of list) {
        const key = `${kind} ${name}`;
        const before = this.records.get(key);
        if (records !== null && before !== undefined && at > this.at) this.rates.set(key, Math.max(0, (1000 * (records - before)) / (at - this.at)));
        if (records !== null) this.records.set(key, records);
      }
    }
    this.at = at;
  }

  words(kind, name) {
    const rate = this.rates.get(`${kind} ${name}`);
    return rate === undefined ? null : rate === 0 ? "0/s" : `${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s`;
  }
}

export function renderStreams(place, { answer, growth, code, problem }) {
  if (code === "no_store" || code === "no_log") {
    show(place, code, () => h("p", { class: "nothing" }, code === "no_store" ? "This agent runs without the store." : "The data are in Valkey or Redis, not in the log: look at them with a client of theirs."));
    return;
  }
  const rows = [
    ...(answer?.streams ?? []).map((each) => ["stream", each]),
    ...(answer?.maps ?? []).map((each) => ["map", each]),
  ].map(([kind, { name, records, bytes: size }]) => [kind, name, records, size, growth.words(kind, name)]);
  show(place, [Boolean(answer), rows, problem], () => [
    rows.length ? table(["name", "", "records", "grows by", "bytes"], rows.slice(0, SHOWN).map(([kind, name, records, size, rate]) => [pageLink(kind, name), kind, records, rate, size === null ? null : bytes(size)]), [2, 3, 4]) : problem ? null : h("p", { class: "nothing" }, answer ? "There are no records yet." : "Asking the agent …"),
    rows.length > SHOWN ? h("p", { class: "soft" }, `and ${rows.length - SHOWN} more`) : null,
    problem ? h("p", { class: "problem" }, problem) : null,
  ]);
}
