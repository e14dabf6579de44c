// Events, the newest first.

import { clock, day, h, show } from "../dom.js";
import { isTrouble } from "../model.js";

const SHOWN = 200;

export function renderEvents(place, events, wanted) {
  const chosen = [];
  for (let index = events.length - 1; index >= 0 && chosen.length < SHOWN; index--) {
    const event = events[index];
    const kept = wanted === "all" || (wanted === "views" && event.kind === "view") || (wanted === "plans" && /^(plan|step|settled|drain|undrain|pause|resume|abort|apply|holding)/.test(event.kind)) || (wanted === "trouble" && isTrouble(event));
    if (kept) chosen.push(event);
  }
  const key = [wanted, events.length, chosen.length, chosen[0]?.time, chosen[0]?.number];
  show(place, key, () => {
    if (!chosen.length) return h("p", { class: "nothing" }, wanted === "all" ? "Nothing has happened yet." : "Nothing of this kind.");
    let today = "";
    return h("ol", { class: "log", tabindex: "0", "aria-label": "Events, the newest first" }, chosen.flatMap((event) => {
      const date = day(event.time);
      const head = date === today ? null : h("li", { class: "day" }, date);
      today = date;
      const kind = isTrouble(event) ? "trouble" : event.kind === "view" ? "view" : "";
      return [head, h("li", { class: kind, "data-kind": event.kind },
        h("time", { datetime: new Date(event.time * 1000).toISOString() }, clock(event.time, { thousandths: true })),
        h("span", { class: "kind" }, event.kind), h("bdi", { class: "words" }, event.text))];
    }));
  });
}
