// What operators do from here, over the same interface as the commands: each says first what would come of it.

import { h, worded } from "./dom.js";

// A question about one action: what it means, what would be done, and two buttons.
class Question {
  // `anyway`: also where nothing can be said of what would come of it.
  constructor({ title, meaning, plan, verb, act, done, anyway = false }) {
    Object.assign(this, { plan, act, told: done, anyway });
    this.body = h("div", { class: "answer", role: "status" }, "Asking the controller; this may take some seconds …");
    this.confirm = h("button", { class: "confirm", type: "button" }, verb);
    this.close = h("button", { class: "plain", type: "button" }, "Cancel");
    this.confirm.disabled = true;
    this.confirm.addEventListener("click", () => this.carryOut());
    this.close.addEventListener("click", () => this.dialog.close());
    this.dialog = h("dialog", { class: "question", "aria-label": title },
      h("h2", {}, title), h("p", { class: "soft" }, worded(meaning)), this.body, h("div", { class: "buttons" }, this.close, this.confirm));
    this.dialog.addEventListener("close", () => this.dialog.remove());
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.prepare();
  }

  async prepare() {
    this.show(await this.ask());
  }

  async ask() {
    try {
      return await this.plan();
    } catch {
      return refused(UNREADABLE);
    }
  }

  show({ nodes, possible, digest }, ...before) {
    this.digest = digest;
    this.body.replaceChildren(...before, ...nodes);
    this.confirm.disabled = !possible && !this.anyway;
    if (this.confirm.disabled) this.close.textContent = "Close";
    else this.confirm.focus();
  }

  async carryOut() {
    this.confirm.disabled = true;
    const { answer, error, code } = await this.act(this.digest);
    if (code === "plan_changed") {
      this.show(await this.ask(), h("p", { class: "problem" }, "Nothing was done: it is no longer what you were shown, but this."));
      return;
    }
    this.body.replaceChildren(error ? h("p", { class: "problem" }, worded(error)) : h("p", { class: "done" }, this.words(answer)));
    this.confirm.hidden = true;
    this.close.textContent = "Close";
    this.close.focus();
  }

  words(answer) {
    try {
      return worded(this.told(answer));
    } catch {
      return UNREADABLE;
    }
  }
}

const UNREADABLE = "The answer of the agent cannot be read.";

const refused = (error) => ({ nodes: [h("p", { class: "problem" }, worded(error))], possible: false });

const lined = (what, lines) => h("div", { class: "lines", tabindex: "0", "aria-label": what, role: "group" }, lines.map((line) => h("p", {}, line)));

export class Actions {
  constructor(source) {
    this.source = source;
  }

  // Only who may do something is offered it.
  get allowed() {
    return this.source.session?.role === "operate";
  }

  // What the controller would do by itself now.
  async plan(emptyIsPossible) {
    const { answer, error } = await this.source.load("/v1/plan");
    if (error) return refused(error);
    const isEmpty = [answer.moves, answer.primaries, answer.roles, answer.slots, answer.retirements ?? []].every((each) => !each.length);
    const dangers = answer.dangers.map((danger) => h("p", { class: "problem" }, danger));
    return { nodes: [...dangers, lined("the plan", answer.text.split("\n"))], possible: answer.feasible && (emptyIsPossible || !isEmpty), digest: answer.digest };
  }

  // What would change if a host were drained, or were not.
  async ifDrained(host, drained) {
    const sql = `UPDATE host SET drained = ${drained} WHERE name = '${host.replaceAll("'", "''")}'`;
    const { answer, error } = await this.source.send("/v1/what-if", { sql });
    if (error) return refused(error);
    const lines = answer.lines.length ? answer.lines : ["nothing would be moved"];
    return { nodes: [lined("what would change", lines), ...(answer.error ? [h("p", { class: "problem" }, worded(answer.error))] : [])], possible: answer.possible };
  }

  post(path, body) {
    return async () => {
      const outcome = await this.source.send(path, body);
      this.source.refresh();
      return outcome;
    };
  }

  // The plan of this digest; a controller of 0.1 names none, and carries out whatever there is.
  ordered(digest) {
    return (digest ? this.post("/v1/apply/shown", { digest }) : this.post("/v1/apply", {}))();
  }

  apply({ observing, paused }) {
    const ends = observing ? ` Until now the engine is only observed: this ends that for good, and the controller then changes it by itself${paused ? " once it is resumed" : ""}.` : "";
    return new Question({
      title: "Carry out the plan", meaning: `What the controller would do now. It is done also while it is paused, which it stays. The same as \`rota apply\`.${ends}`,
      plan: () => this.plan(false), verb: "Carry it out", act: (digest) => this.ordered(digest),
      done: ({ plan_id: id, moves, waves }) => (id === null ? "There is nothing to do any more." : `Plan ${id} is carried out: ${moves} ${moves === 1 ? "move" : "moves"}, ${waves} ${waves === 1 ? "wave" : "waves"}. The panel Plan follows it.`),
    });
  }

  pause(control) {
    return new Question({
      title: "Pause", meaning: "No data is moved until it is resumed: nothing starts, and copies under way are cancelled; what has arrived stays. Lost hosts are still taken out. The same as `rota pause`.",
      plan: async () => ({ nodes: [h("p", {}, control?.plan ? `Under way: ${control.plan}.` : "Nothing is under way.")], possible: true }), verb: "Pause", act: this.post("/v1/pause", {}),
      done: () => "Paused: no data is moved until `rota resume`.",
    });
  }

  resume({ observing, restoring }) {
    const ends = observing ? " Until now the engine is only observed: this ends that for good." : "";
    const gives = restoring ? " A backup is being restored: this gives that up, and it cannot be gone on with." : "";
    return new Question({
      title: "Resume", meaning: `The controller goes on by itself, with what stands below. The same as \`rota resume\`.${ends}${gives}`,
      plan: () => this.plan(true), anyway: true, verb: "Resume", act: this.post("/v1/resume", {}),
      done: () => "The controller goes on by itself.",
    });
  }

  drain(host, { paused }) {
    const waits = paused ? " It is paused, so this waits for `rota resume` or `rota apply`." : "";
    return new Question({
      title: `Drain ${host}`, meaning: `Its copies and roles move elsewhere, and it gets no new ones; it stays a member. The same as \`rota drain\`.${waits}`,
      plan: () => this.ifDrained(host, true), verb: "Drain it", act: this.post("/v1/drain", { host }),
      done: () => `${host} is being drained.${waits}`,
    });
  }

  undrain(host, { paused }) {
    const waits = paused ? " It is paused, so this waits for `rota resume` or `rota apply`." : "";
    return new Question({
      title: `Undrain ${host}`, meaning: `It may hold copies again. The same as \`rota undrain\`.${waits}`,
      plan: () => this.ifDrained(host, false), anyway: true, verb: "Undrain it", act: this.post("/v1/undrain", { host }),
      done: () => `${host} may hold copies again.${waits}`,
    });
  }

  // A button that asks, for who may.
  button(text, ask) {
    const button = h("button", { class: "plain", type: "button" }, text);
    button.addEventListener("click", ask);
    return button;
  }
}
