"""What is asked of the controller, by name, and its answers as JSON values (types: ``rota.http.control_answers``).

One table for both ways a request comes: over HTTP to the controller's own agent, and passed on by another agent.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mgmt.control.controller import Controller
from mgmt.plans.plan import Plan
from mgmt.solving.placement_questions import Question
from rota.errors import ApiError

ANSWERED_ANYWHERE: Final = frozenset({"layout", "history", "difference", "recover-layout"})
"""Read from the engine, or forced upon it, by whichever agent is asked."""
_DIGEST: Final = re.compile("[0-9a-f]{64}")
"""SHA-256 of a backup's frames, as `rota.client.backup_file.End` has it."""
ASKED_AT: Final = "asked_at"
"""The argument of every request that names the agent an operator spoke to, and the operator if that is known."""


async def answer(controller: Controller, request: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Raises :class:`ApiError` for a request that is none, and what the controller raises."""
    requests = controller.requests.on_behalf_of(_asked_at(arguments))
    match request, arguments:
        case "layout", _:
            return {**await controller.reports.layout(), "open_moves": controller.status()["open_moves"]}
        case "history", _:
            return await controller.reports.history()
        case "difference", {"before": before, "after": after}:
            return await controller.reports.difference(_epoch(before), _epoch(after))
        case "plan", _:
            return (await requests.plan()).to_json()
        case "control", _:
            return controller.status()
        case "policies", _:
            return await requests.policies()
        case "outcome", {"plan_id": str(plan_id)}:
            return await controller.reports.outcome(plan_id)
        case "drain", {"host": str(host)}:
            await requests.drain(host)
            return {"host": host, "drained": True}
        case "undrain", {"host": str(host)}:
            if host not in controller.status()["drains"]:
                raise ApiError(f"{host} is not drained", code="not_drained", status=409)
            await requests.undrain(host)
            return {"host": host, "drained": False}
        case "pin", {"segment": str(segment), "host": str(host)}:
            await requests.pin(segment, host)
            return {"segment": segment, "host": host, "pinned": True}
        case "unpin", {"segment": str(segment), "host": str(host)}:
            pin = {"segment": segment, "host": host}
            if pin not in controller.status()["pins"]:
                raise ApiError(f"{segment} is not pinned to {host}", code="not_pinned", status=409)
            await requests.unpin(segment, host)
            return {**pin, "pinned": False}
        case "segments", {"count": int(count)} if not isinstance(count, bool):
            before = await requests.resize(count)
            return {"segments": count, "before": before}
        case "rebalance", {"confirmed": bool(confirmed)}:
            dry_run = await requests.rebalance(confirmed=confirmed)
            return {**dry_run.to_json(), "confirmed": confirmed}
        case "restore", {"backup": str(backup), "resume": bool(resume)} if _DIGEST.fullmatch(backup):
            return {"was_paused": await requests.begin_restoring(backup, resume=resume)}
        case "restored", {"backup": str(backup), "intent": intent} if intent is None or isinstance(
            intent, dict
        ):
            await requests.finish_restoring(backup, intent)
            return {"paused": True}
        case "forget", {"hosts": list(hosts), "confirmed": bool(confirmed)}:
            names = [str(host) for host in hosts]
            return await controller.forced_recovery.forget(names, _asked_at(arguments), confirmed=confirmed)
        case "recover-layout", {"confirmed": bool(confirmed)}:
            return await controller.forced_recovery.recover_layout(_asked_at(arguments), confirmed=confirmed)
        case "why", {"name": str(name)}:
            return (await requests.why(name)).to_json()
        case "why-not", {"segment": str(segment), "host": str(host)}:
            return (await requests.explain(Question("why-not", segment, host))).to_json()
        case "what-if", {"sql": str(sql)}:
            return (await requests.explain(Question("what-if", sql=sql))).to_json()
        case "pause", _:
            await requests.pause()
            return {"paused": True}
        case "resume", _:
            await requests.resume()
            return {"paused": False}
        case "abort", _:
            return {"paused": True, "plan_id": await requests.abort()}
        case "apply", _:
            return _ordered(await requests.apply())
        case "apply-shown", {"digest": str(digest)}:  # a name of its own: 0.1 would apply whatever there is
            return _ordered(await requests.apply(digest))
    raise ApiError(f"{request!r} is not a request this version knows", code="bad_request", status=400)


def _ordered(plan: Plan | None) -> dict[str, Any]:
    if plan is None:
        return {"plan_id": None, "moves": 0, "bytes": 0, "waves": 0}
    counts = {"moves": len(plan.moves), "bytes": plan.bytes, "waves": len(plan.waves)}
    return {"plan_id": plan.agreed_as, **counts}


def _asked_at(arguments: dict[str, Any]) -> str:
    return str(arguments.get(ASKED_AT, ""))


def _epoch(text: object) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ApiError(f"{text!r:.40} is no layout epoch, a whole number", code="bad_request", status=400)
    return int(text)
