// Asking the agent.  Each resource remembers when it was last answered, so that its age can be shown; the status is
// the heartbeat: when it does not come the agent is away, nothing else is asked, and the page says so.

const HEARTBEAT = 1000;
const PATIENCE = 4000;
const FAILED = 2000; // until what was refused is asked for again
const NEVER_THERE = 60000; // the same for what an agent without the store does not have
const ABSENT = new Set(["no_store", "no_log"]);
const RETRIES = [1000, 2000, 4000, 5000];

// How old each may get before it is asked for again without a reason, in ms; `busy` while a plan is carried out or
// somebody is suspected.
export const RESOURCES = {
  status: { path: "/v1/status", every: HEARTBEAT },
  suspicions: { path: "/v1/suspicions", every: 1000, busy: 250 },
  control: { path: "/v1/control", every: 3000, busy: 400 },
  members: { path: "/v1/members", every: 20000 },
  layout: { path: "/v1/layout", every: 10000, busy: 1500 },
  views: { path: "/v1/views", every: 30000 },
  policies: { path: "/v1/policies", every: 120000 },
  streams: { path: "/v1/streams", every: 5000 },
  measured: { path: "/v1/measured", every: 10000 },
};

// What an event makes worth asking again.
function touched(kind) {
  if (kind === "view") return ["status", "members", "layout", "control", "views", "suspicions", "policies"];
  if (kind.startsWith("step-")) return ["control", "layout"];
  if (kind === "keys" || kind === "tags") return ["members"];
  return ["control", "layout", "status"];
}

export class Source {
  constructor(changed) {
    this.changed = changed;
    this.connection = "connecting";
    this.held = {};
    this.locks = 0; // how often everything was forgotten: what was asked before is nobody's answer any more
    this.watched = {}; // what only the page that is open needs
    for (const key of Object.keys(RESOURCES)) this.held[key] = nothing();
    this.events = new Map();
    this.eventsHeard = 0; // how often they have changed
    this.eventsAt = -Infinity;
    this.attempts = 0;
    this.retryAt = 0;
    this.lastHeard = -Infinity;
    this.cluster = null;
    this.viewId = null;
    this.viewsOf = null; // the view that was in force when the views were asked for
    this.stream = null;
    this.lastViews = [];
    this.session = null; // who we are, once it is known
    this.problem = ""; // with the last login
  }

  start() {
    const tick = () => {
      if (!document.hidden) this.tick();
    };
    setInterval(tick, 100);
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : tick()));
    addEventListener("pagehide", () => this.close());
    tick();
  }

  now() {
    return performance.now();
  }

  // What a page needs beside the rest, as long as it is open.
  watch(resources) {
    for (const key of Object.keys(this.watched)) if (resources[key]?.path !== this.watched[key].path) delete this.held[key];
    this.watched = resources;
    for (const key of Object.keys(resources)) this.held[key] ??= nothing();
  }

  of(key) {
    return this.held[key] ?? nothing();
  }

  // Seconds since it was last known to be so.  A view's id covers all that is said about its members, so while the
  // heartbeat names the same view, who is in and who installed it is as fresh as the heartbeat.
  age(key) {
    const confirmed = (key === "members" && this.held.members.data?.id === this.viewId) || (key === "views" && this.viewsOf === this.viewId && !this.lastViews.length);
    return (this.now() - Math.max(this.held[key].at, confirmed ? this.lastHeard : -Infinity)) / 1000;
  }

  get heardAgo() {
    return (this.now() - this.lastHeard) / 1000;
  }

  get retryIn() {
    return Math.max(0, (this.retryAt - this.now()) / 1000);
  }

  retryNow() {
    this.retryAt = 0;
    this.tick();
  }

  tick() {
    const now = this.now();
    const status = this.held.status;
    if (this.connection === "locked" || (this.connection === "away" && now < this.retryAt)) return;
    const executing = this.held.control.data?.phase === "executing";
    const reading = this.held.suspicions.data;
    const doubt = reading && reading.own.length + reading.suspects.length + reading.votes.length > 0;
    for (const [key, { every, busy: fast }] of Object.entries({ ...RESOURCES, ...this.watched })) {
      const held = this.held[key];
      if (held.open || (key !== "status" && (this.connection !== "live" || status.data?.state === "joining"))) continue;
      const busy = key === "suspicions" ? doubt : executing;
      const pause = ABSENT.has(held.code) ? NEVER_THERE : held.error ? Math.min(every, FAILED) : busy && fast ? fast : every;
      // Due at once, but not more than a few times a second: events come in bursts.
      if (now - held.asked >= (held.due && !held.error ? Math.min(pause, 250) : pause)) this.ask(key);
    }
    // The very latest members to install a view tell of it a moment later.
    while (this.lastViews.length && this.lastViews[0] <= now) {
      this.lastViews.shift();
      this.held.views.due = true;
    }
  }

  async ask(key) {
    const held = this.held[key];
    const { path } = RESOURCES[key] ?? this.watched[key];
    held.open = true;
    held.due = false;
    held.asked = this.now();
    const [view, locks] = [this.viewId, this.locks];
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), key === "status" ? PATIENCE : 30000);
    try {
      const answer = await fetch(path, { signal: stop.signal, headers: { accept: "application/json" }, cache: "no-store" });
      const body = await answer.json();
      if (locks !== this.locks) return;
      if (answer.ok) {
        held.data = body;
        held.at = held.asked;
        held.error = held.code = "";
        if (key === "status") this.onStatus(body);
        if (key === "views") this.viewsOf = view;
      } else if (answer.status === 401) {
        this.lock();
        return;
      } else {
        held.error = typeof body?.error === "string" ? body.error : `status ${answer.status}`;
        held.code = body?.code;
      }
      if (key === "status") this.onHeartbeat();
    } catch (error) {
      if (locks !== this.locks) return;
      if (key === "status") this.onSilence();
      else {
        held.error = error.name === "AbortError" ? "The agent has not answered within 30 s." : "The agent gave no answer, or none that can be read.";
        held.asked = this.now(); // the pause begins now
      }
    } finally {
      clearTimeout(timer);
      held.open = false;
      this.changed();
    }
  }

  onHeartbeat() {
    this.lastHeard = this.held.status.asked;
    this.attempts = 0;
    if (this.connection !== "live") {
      this.connection = "live";
      for (const held of Object.values(this.held)) if (held !== this.held.status) Object.assign(held, { due: true, error: "" });
    }
    if (!this.session) this.askWho();
    if (!this.stream) this.follow();
  }

  async askWho() {
    this.session = {};
    try {
      const answer = await fetch("/v1/session", { cache: "no-store" });
      if (answer.ok) this.session = await answer.json();
    } catch {
      this.session = null;
    }
    this.changed();
  }

  // A token is needed: nothing is asked until somebody has logged in, and nothing stays to be seen by others.
  lock() {
    if (this.connection === "locked") return;
    this.connection = "locked";
    this.locks += 1;
    this.session = null;
    this.close();
    this.events.clear();
    this.eventsHeard += 1;
    for (const held of Object.values(this.held)) Object.assign(held, { data: null, at: -Infinity, asked: -Infinity, error: "", due: true });
    this.changed();
  }

  async login(token) {
    this.problem = "";
    try {
      const answer = await this.post("/v1/login", { token });
      if (answer.ok) this.connection = "connecting";
      else this.problem = (await answer.json()).error ?? `status ${answer.status}`;
    } catch {
      this.problem = "The agent does not answer; try again.";
    }
    this.changed();
    this.tick();
  }

  async logout() {
    try {
      await this.post("/v1/logout", {});
    } catch {
      return; // it does not answer: the session is still there
    }
    this.lock();
  }

  post(path, body) {
    return fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  }

  // Something to be done, or explained: the answer, or why there is none.
  send(path, body) {
    return this.settle(this.post(path, body), "The agent does not answer; whether it was done is not known.");
  }

  load(path) {
    return this.settle(fetch(path, { headers: { accept: "application/json" }, cache: "no-store" }), "The agent does not answer; try again.");
  }

  async settle(asked, silent) {
    try {
      const answer = await asked;
      const found = await answer.json();
      if (answer.status === 401) this.lock();
      return answer.ok ? { answer: found } : { error: found.error ?? `status ${answer.status}`, code: found.code };
    } catch {
      return { error: silent };
    }
  }

  // Something was changed: see what of it there is.
  refresh() {
    for (const key of ["control", "layout", "status"]) this.held[key].due = true;
    this.tick();
  }

  onSilence() {
    if (document.hidden) return;
    this.connection = "away";
    this.close();
    this.retryAt = this.now() + RETRIES[Math.min(this.attempts++, RETRIES.length - 1)];
  }

  onStatus(status) {
    if (this.cluster !== null && status.cluster_id !== null && status.cluster_id !== this.cluster) {
      location.reload(); // another cluster answers here now: nothing on this page is about it
    }
    this.cluster = status.cluster_id ?? this.cluster;
    if (status.id !== this.viewId) {
      this.viewId = status.id;
      for (const key of ["members", "layout", "control", "views", "suspicions"]) this.held[key].due = true;
      this.lastViews = [this.now() + 700, this.now() + 3000];
    }
  }

  // The stream begins with all the controller remembers: what is known already is told apart by number and time.
  follow() {
    const stream = new EventSource("/v1/events");
    this.stream = stream;
    stream.onmessage = (message) => {
      this.eventsAt = this.now();
      let event;
      try {
        event = JSON.parse(message.data);
      } catch {
        return;
      }
      if (typeof event?.time !== "number" || typeof event.kind !== "string") return;
      const key = `${event.time} ${event.number} ${event.kind}`;
      if (this.events.has(key)) return;
      this.events.set(key, event);
      this.eventsHeard += 1;
      if (this.events.size > 3000) this.events.delete(this.events.keys().next().value);
      const news = ["view", "plan-done", "settled"].includes(event.kind) ? Object.keys(this.watched) : [];
      for (const resource of [...touched(event.kind), ...news]) this.held[resource].due = true;
      this.changed();
    };
    stream.onerror = () => {
      stream.close();
      if (this.stream === stream) this.stream = null; // the next heartbeat opens another
      this.changed();
    };
  }

  close() {
    this.stream?.close();
    this.stream = null;
  }

  get sorted() {
    return [...this.events.values()].sort((one, other) => one.time - other.time || one.number - other.number);
  }
}

function nothing() {
  return { data: null, at: -Infinity, asked: -Infinity, error: "", due: true, open: false };
}
