// The page: takes what the source has, makes the model, and has each panel show its part.

import { Actions } from "./actions.js";
import { clean, consoleLink, counted, h, show, since, worded } from "./dom.js";
import { renderEvents } from "./panels/events.js";
import { headline } from "./headline.js";
import { Hosts } from "./panels/hosts.js";
import { departures, planOf, racks } from "./model.js";
import { HelpPage } from "./pages/help.js";
import { HostPage } from "./pages/host.js";
import { SegmentPage } from "./pages/segment.js";
import { MapPage, StreamPage } from "./pages/stream.js";
import { renderPlan, renderPlanActions } from "./panels/plan.js";
import { Plots } from "./panels/plots.js";
import { renderPolicies } from "./panels/policies.js";
import { Ring } from "./panels/ring.js";
import { Growth, renderStreams } from "./panels/streams.js";
import { Source } from "./source.js";
import { Timeline } from "./panels/timeline.js";

const at = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let pending = false;
let events = [];
let eventsSeen = 0;

const source = new Source(() => {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    render();
  });
});
const actions = new Actions(source);
const hosts = new Hosts(at("hosts"));
const ring = new Ring(document.querySelector(".panel.suspicions"), at("suspicions"));
const growth = new Growth();
const hour = new Plots(at("hour"));
const timeline = new Timeline(at("timeline"), at("ranges"));

at("find").addEventListener("input", () => {
  hosts.find(at("find").value);
  render();
});
at("kinds").addEventListener("change", render);
at("ranges").addEventListener("change", render);
at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = at("token").value.trim();
  at("token").value = "";
  at("enter").disabled = true;
  await source.login(token);
  at("enter").disabled = false;
});
at("logout").addEventListener("click", () => source.logout());
addEventListener("resize", render);
addEventListener("hashchange", () => {
  turn();
  scrollTo(0, 0);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);

// Shown times go on: ages every second, and the moving picture as often, unless it should not move.
setInterval(() => {
  if (!document.hidden) render();
}, calm.matches ? 5000 : 1000);
setInterval(() => {
  if (!document.hidden) ages();
}, 500);

// The page that the address names, or none: the overview.
const PAGES = { help: () => new HelpPage(), host: (text) => new HostPage(text, actions), segment: (text) => new SegmentPage(text, source), stream: (text) => new StreamPage(text), map: (text) => new MapPage(text) };
let page = null;

function turn() {
  const [, kind, text] = location.hash.match(/^#\/([a-z]+)(?:\/(.+))?$/) ?? [];
  page = null;
  try {
    if (Object.hasOwn(PAGES, kind) && (kind === "help" || text)) page = PAGES[kind](decodeURIComponent(text ?? ""));
  } catch {
    // no name that could be meant
  }
  at("page").hidden = !page;
  at("overview").hidden = Boolean(page);
  at("page-body").replaceChildren(...(page?.element ?? []));
  source.watch(page?.resources() ?? {});
  render();
}

// The state, as far as it is known.  The agent's clock is the one its events use, so "now" is this machine's.
function render() {
  const held = (key) => source.held[key].data;
  const errors = Object.fromEntries(Object.entries(source.held).map(([key, { error }]) => [key, error]));
  const now = Date.now() / 1000;
  if (source.eventsHeard !== eventsSeen) {
    events = source.sorted;
    eventsSeen = source.eventsHeard;
    timeline.history.note(events);
  }
  const status = held("status");
  const joined = status && status.state !== "joining";
  const members = joined ? held("members")?.members ?? null : null;
  const layout = held("layout");
  const control = held("control") && { ...held("control"), fetched_ago: source.age("control") };
  const reading = held("suspicions");
  const departed = departures(events, status?.former ?? held("members")?.former, members);
  const groups = racks({ members, layout, status, departed, suspicions: reading, control, now });
  const plan = planOf(events, control);
  const store = source.held.layout.code !== "no_store";
  timeline.history.take(held("views"));

  document.body.dataset.connection = source.connection;
  renderFacts(status, layout, control);
  const streams = held("streams");
  growth.take(streams, source.held.streams.at);
  if (page) {
    page.render({ streams, growth, members, groups, layout, control, departed, events, status, now, store, held: (key) => source.of(key) });
    source.watch(page.resources());
  }
  renderHeadline(headline({ status, control, layout, members, racks: groups, plan, departed, suspicions: reading, now, errors, store }));
  if (page) {
    renderSession();
    ages();
    return;
  }
  hosts.render(groups, { problem: errors.members, now, store, departed });
  timeline.render(now, { departed, asked: held("views")?.asked ?? 0, size: held("views")?.size ?? 0, problem: errors.views });
  renderPlanActions(at("plan-actions"), { actions, control, store });
  renderPlan(at("plan"), { plan, control, problem: errors.control, store, now });
  ring.render({ members: members ?? [], reading, problem: errors.suspicions });
  renderStreams(at("streams"), { answer: streams, growth, code: source.held.streams.code, problem: errors.streams });
  renderPolicies(at("policies"), { listing: held("policies"), control, problem: errors.policies, store });
  renderEvents(at("events"), events, at("kinds").value);
  const measured = held("measured");
  at("hour-hosts").textContent = !measured ? "" : `${measured.asked < measured.size ? `${measured.asked} of ${measured.size} hosts` : counted(measured.asked, "host")}${measured.silent.length ? `; no answer from ${measured.silent.length}` : ""}`;
  hour.render({ measured: measured?.members, problem: errors.measured, now });
  renderSession();
  ages();
}

function renderSession() {
  const locked = source.connection === "locked";
  const appears = locked && at("login").hidden;
  at("login").hidden = !locked;
  if (appears) {
    // What somebody has asked for is for nobody else to see.
    for (const question of document.querySelectorAll("dialog.question")) {
      question.close();
      question.remove();
    }
    turn();
    at("token").focus();
  }
  document.querySelector("main").hidden = locked;
  at("login-problem").textContent = clean(source.problem);
  const who = source.session?.name;
  at("session").hidden = !who;
  at("who").textContent = who ? clean(`${who} (${source.session.role})`) : "";
}

function renderFacts(status, layout, control) {
  const epoch = layout?.layout_epoch ?? control?.layout_epoch;
  const facts = !status ? [] : [
    ["view", status.epoch ?? "none yet"],
    ["members", status.size],
    ["quorum", status.quorum ? "yes" : "LOST", status.quorum ? "" : "bad"],
    ["controller", `${status.controller ?? "none"}${control?.paused ? " (paused)" : ""}`],
    ...(Object.keys(control?.frozen ?? {}).length ? [["frozen", Object.keys(control.frozen).sort().join(", ")]] : []),
    ...(control?.pins?.length ? [["pinned", control.pins.map(({ segment, host }) => `${segment} to ${host}`).join(", ")]] : []),
    ...(epoch === undefined || epoch < 0 ? [] : [["layout", epoch]]),
    ...(status.engine ? [["servers", `${status.engine.name}, ${status.engine.running === null ? status.engine.servers.length : `${status.engine.running} of ${status.engine.servers.length}`} here`, status.engine.running !== null && status.engine.running < status.engine.servers.length ? "bad" : ""]] : []),
    ["cluster", (status.cluster_id ?? "unknown").slice(0, 8)],
    ["encryption", status.keys ? `key ${status.keys.primary}` : "none"],
    ["answered by", `${status.name}`],
  ];
  show(at("facts"), facts, () => facts.map(([term, value, kind]) => h("div", {}, h("dt", {}, term), h("dd", { class: kind ?? "", "data-fact": term }, h("bdi", {}, value)))));
  at("version").textContent = status?.version ? clean(status.version) : "";
  const what = page ? `${page.title} · ` : "";
  document.title = status ? `${status.quorum || status.state === "joining" ? "" : "! "}${clean(what)}${status.size} members, view ${status.epoch ?? "–"} · rota` : "rota";
}

function renderHeadline({ level, title, detail }) {
  const signs = { good: "✓", busy: "…", warn: "!", bad: "✕" };
  const words = { good: "in order", busy: "busy", warn: "attention", bad: "trouble" };
  const place = at("headline");
  place.className = `headline ${level}`;
  place.hidden = source.connection === "away"; // then the banner is the state, and what stands here is old
  document.documentElement.dataset.level = source.connection === "away" ? "bad" : level;
  // Only the sentence is announced, and only when it changes: not the seconds that pass in what stands below it.
  show(at("sentence"), [level, title], () => [h("span", { class: "unseen" }, `${words[level]}: `), h("bdi", {}, title)]);
  show(at("sign"), level, () => document.createTextNode(signs[level]));
  show(at("detail"), detail, () => worded(detail));
}

const AGES = {
  "hosts-age": ["members", "layout"], "timeline-age": ["views"], "plan-age": ["control"], "suspicions-age": ["suspicions"], "policies-age": ["control"], "hour-age": ["measured"], "streams-age": ["streams"],
};
const OLD = { members: 30, layout: 25, views: 45, control: 10, suspicions: 5, measured: 25, streams: 25 };

function ages() {
  const away = source.connection === "away";
  const place = at("connection");
  const heard = Number.isFinite(source.heardAgo) ? since(source.heardAgo) : null;
  const following = source.stream?.readyState === 1;
  const text = away ? "agent away" : source.connection === "locked" ? "locked" : source.connection !== "live" ? "connecting" : `live, ${heard} ago${following ? "" : "; events reconnecting"}`;
  if (place.textContent !== text) place.textContent = text;
  for (const [id, keys] of Object.entries(AGES)) {
    const known = keys.filter((key) => !source.held[key].code?.startsWith("no_") && Number.isFinite(source.age(key)));
    const oldest = known.length ? Math.max(...known.map((key) => source.age(key))) : null;
    const old = known.some((key) => source.age(key) > OLD[key]) || (away && oldest !== null);
    at(id).textContent = oldest === null ? "" : old || oldest >= 2 ? `as of ${since(oldest)} ago` : "as of now";
    at(id).classList.toggle("old", old);
  }
  at("events-age").textContent = counted(events.length, "event");
  const banner = at("away");
  banner.hidden = !away;
  if (away) {
    const others = (source.held.members.data?.members ?? []).filter(({ name }) => name !== source.held.status.data?.name);
    show(banner, others, () => {
      const button = h("button", {}, "Try now");
      button.addEventListener("click", () => source.retryNow());
      const links = others.map((member) => consoleLink(member.http, member.name)).filter(Boolean).slice(0, 8);
      return [h("strong", {}, "The agent does not answer."), h("span", { id: "away-text" }), button, links.length ? h("span", {}, "Or ask another: ", links.flatMap((link, index) => (index ? [" ", link] : [link]))) : null];
    });
    at("away-text").textContent = `${heard === null ? "It never did." : `What you see is ${heard} old and may be wrong by now.`} Trying again ${source.retryIn < 1 ? "now" : `in ${Math.ceil(source.retryIn)} s`}.`;
  }
}

addEventListener("error", (event) => {
  renderHeadline({ level: "bad", title: "The console itself has failed", detail: event.message });
});

source.start();
turn();
