"""What is asked about a plan: why, why not, how much more fits, and what if hosts are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.commands.orchestrators.vsphere.options import Questions
from rota.errors import ReportedFailure, UsageProblem
from rota.terminal.output import emit

if TYPE_CHECKING:
    from mgmt import InfeasibleError, WhatIf
    from orchestrators.vsphere.inventory import Inventory
    from orchestrators.vsphere.planning import Planner, PlanSettings

TABLE = "vm"


def answer(
    planner: Planner, parts: list[Inventory], settings: PlanSettings, questions: Questions, json_wanted: bool
) -> None:
    """Print the answer.  Raises ReportedFailure where rules clash, UsageProblem for unknown names."""
    import mgmt
    from mgmt import InfeasibleError
    from rota.commands.policies import documents, report

    try:
        if questions.lose or questions.lose_site:
            _lose(planner, parts, settings, questions, json_wanted)
            return
        machine = questions.why or questions.headroom or (questions.why_not or ("",))[0]
        planner.fill(_with_machine(parts, machine), settings)
        model, budget, seed = planner.model, settings.budget, settings.seed
        if questions.why is not None:
            verdicts = mgmt.why(model, TABLE, (machine,), budget=budget, seed=seed)
            emit(
                {"decisions": [documents.verdict_document(each) for each in verdicts]},
                json_wanted,
                lambda _: report.show_verdicts(verdicts),
            )
        elif questions.why_not is not None:
            host = questions.why_not[1]
            verdict = mgmt.why_not(model, TABLE, (machine,), host, budget=budget, seed=seed)
            emit(documents.verdict_document(verdict), json_wanted, lambda _: report.show_verdict(verdict))
        else:
            room = mgmt.headroom(model, TABLE, (machine,), budget=budget, seed=seed)
            emit(documents.headroom_document(room), json_wanted, lambda _: report.show_headroom(room))
    except InfeasibleError as error:
        _show_clash(error, json_wanted)
        raise ReportedFailure(report.in_one_line(error)) from error


def _with_machine(parts: list[Inventory], name: str) -> Inventory:
    for part in parts:
        if any(machine.name == name for machine in part.machines):
            return part
    raise UsageProblem(f"there is no machine {name!r} that is switched on in these clusters")


def _lose(
    planner: Planner, parts: list[Inventory], settings: PlanSettings, questions: Questions, json_wanted: bool
) -> None:
    """Machines of lost hosts are started elsewhere, however many they are, in the room that is kept for that."""
    import mgmt
    from mgmt import InfeasibleError
    from rota.commands.policies import report

    known = {host.name: host for part in parts for host in part.hosts}
    lost = set(questions.lose)
    if questions.lose_site is not None:
        site = {name for name, host in known.items() if questions.lose_site in (host.site, host.cluster)}
        if not site:
            raise UsageProblem(f"no host has the custom attribute site = {questions.lose_site!r}")
        lost |= site
    if unknown := sorted(lost - set(known)):
        raise UsageProblem(f"there is no host {unknown[0]!r} in these clusters")
    failed: list[str] = []
    for part in parts:
        hosts = sorted(host.name for host in part.hosts if host.name in lost)
        if not hosts:
            continue
        planner.fill(part, settings)
        found = mgmt.what_if(planner.model, _loss(hosts), budget=settings.budget, seed=settings.seed)
        _show_what_if(found, json_wanted)
        if isinstance(found.after, InfeasibleError):
            failed.append(f"cluster {part.clusters[0].name}: {report.in_one_line(found.after)}")
    if failed:
        raise ReportedFailure(failed[0])


def _show_clash(error: InfeasibleError, json_wanted: bool) -> None:
    from rota.commands.policies import documents, report

    emit(documents.infeasible_document(error), json_wanted, lambda _: report.show_infeasible(error))


def _show_what_if(found: WhatIf, json_wanted: bool) -> None:
    from rota.commands.policies import documents, report

    emit(documents.what_if_document(found), json_wanted, lambda _: report.show_what_if(found))


def _loss(hosts: list[str]) -> str:
    listed = ", ".join("'" + host.replace("'", "''") + "'" for host in hosts)
    return (
        f"UPDATE host SET maintenance = TRUE WHERE name IN ({listed}); "
        f"UPDATE vm SET stays = FALSE WHERE host IN ({listed}); "
        "DELETE FROM migration_limit; "
        "DELETE FROM failover"
    )
