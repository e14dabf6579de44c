"""What can be asked over HTTP: the one table that the routes and the OpenAPI document are made from."""

from __future__ import annotations

from typing import Final

from rota.access.roles import PUBLIC, READ
from rota.http import answers, control_answers
from rota.http.endpoints import Endpoints
from rota.http.openapi import Operation

BINARY: Final = "application/octet-stream"
MOST: Final = "at most so many bytes of each value in `text` and `hex`; `bytes` is its whole size"


def operations(endpoints: Endpoints) -> list[Operation]:
    """All of them."""
    return [
        *_of_the_agent(endpoints),
        *_of_the_membership(endpoints),
        *_of_the_placement(endpoints),
        *_of_the_store(endpoints),
    ]


def _of_the_agent(endpoints: Endpoints) -> list[Operation]:
    """This agent: what it is, how it is, who asks."""
    return [
        Operation(
            "/", endpoints.index, "What there is; in a browser the console", "text/plain", also="text/html",
            role=PUBLIC,
        ),
        Operation(
            "/console/{name}", endpoints.console_file, "A file of the console", "text/plain", role=PUBLIC,
        ),
        Operation(
            "/console/{folder}/{name}", endpoints.console_file, "One in a folder", "text/plain", role=PUBLIC,
        ),
        Operation("/healthz", endpoints.health, "Whether the process runs", "text/plain", role=PUBLIC),
        Operation("/readyz", endpoints.ready, "Whether this agent can be relied on", "text/plain", role=PUBLIC),
        Operation(
            "/v1/login", endpoints.login, "A session for a browser, as a cookie", answers.Who, "POST",
            answers.LoginRequest, role=PUBLIC, is_recorded=True,
        ),
        Operation(
            "/v1/logout", endpoints.logout, "End the session", answers.Nothing, "POST", answers.Nothing,
            role=PUBLIC,
        ),
        Operation("/v1/session", endpoints.session, "Who you are, and your role", answers.Who),
        Operation("/metrics", endpoints.metrics, "The status and all counters, for Prometheus", "text/plain"),
        Operation("/v1/status", endpoints.status, "How this agent is", answers.Status),
        Operation(
            "/v1/events", endpoints.events, "What happened at the controller, or here", answers.Events,
            query={"after": "only what came after this number", "local": "1: what happened at this agent"},
            also="text/event-stream",
        ),
    ]  # fmt: skip


def _of_the_membership(endpoints: Endpoints) -> list[Operation]:
    """Who is in, who suspects whom, the keys of all hosts; who leaves or is removed."""
    return [
        Operation("/v1/members", endpoints.members, "The view", answers.Members),
        Operation("/v1/suspicions", endpoints.suspicions, "Who suspects whom now", answers.Reading),
        Operation(
            "/v1/sd/prometheus", endpoints.scrape_targets, "The agents, for Prometheus to find them (http_sd)",
            list[answers.ScrapeTargets],
        ),
        Operation("/v1/views", endpoints.views, "When each member installed each view", answers.Views),
        Operation("/v1/hosts/{name}", endpoints.host, "What the agent of a host tells of it", answers.HostReport),
        Operation("/v1/measured", endpoints.measured, "The last hour of each host", answers.AllMeasured),
        Operation("/v1/keys", endpoints.keys, "Which host holds which keys", answers.Keys),
        Operation(
            "/v1/keys", endpoints.keys, "One step with all keys", answers.Keys, "POST", answers.KeyRequest,
        ),
        Operation(
            "/v1/evict", endpoints.operation("evict", {}), "Remove a member", answers.Evicted, "POST",
            answers.HostRequest,
        ),
        Operation(
            "/v1/leave", endpoints.leave, "Leave; the agent then ends", answers.Gone, "POST", answers.Nothing
        ),
        Operation(
            "/v1/tags", endpoints.operation("tags", {"set": {}, "remove": []}), "Change this agent's tags",
            answers.Tags, "POST", answers.TagsRequest,
        ),
        Operation(
            "/v1/recover", endpoints.operation("recover", {"force": False}), "Begin again with the survivors",
            answers.Recovered, "POST", answers.RecoverRequest,
        ),
    ]  # fmt: skip


def _of_the_placement(endpoints: Endpoints) -> list[Operation]:
    """Layouts and plans, asked of the controller, and what operators ask for."""
    return [
        Operation(
            "/v1/layout", endpoints.controlled("layout"), "Segments, replicas by rack, roles",
            control_answers.Layout,
        ),
        Operation(
            "/v1/layout/history", endpoints.controlled("history"), "How the layout came about",
            control_answers.History,
        ),
        Operation(
            "/v1/layout/diff/{before}/{after}", endpoints.controlled("difference", before=str, after=str),
            "What differs between two versions", control_answers.Comparison,
        ),
        Operation(
            "/v1/plan", endpoints.controlled("plan"), "A dry run of the next plan", control_answers.DryRun,
        ),
        Operation(
            "/v1/control", endpoints.controlled("control"), "What the controller is at",
            control_answers.Control,
        ),
        Operation(
            "/v1/policies", endpoints.controlled("policies"), "The rules in force", control_answers.Policies,
        ),
        Operation(
            "/v1/plans/{plan_id}", endpoints.controlled("outcome", plan_id=str), "What has become of a plan",
            control_answers.Outcome,
        ),
        Operation(
            "/v1/apply", endpoints.apply, "Carry out what a dry run would show now", control_answers.Applied,
            "POST", answers.Nothing,
        ),
        Operation(
            "/v1/apply/shown", endpoints.controlled("apply-shown", digest=str),
            "Carry out the plan that was shown, and no other", control_answers.Applied, "POST", answers.ShownPlan,
        ),
        Operation(
            "/v1/pause", endpoints.controlled("pause"), "Move no data", control_answers.Paused, "POST",
            answers.Nothing,
        ),
        Operation(
            "/v1/resume", endpoints.controlled("resume"), "Go on", control_answers.Paused, "POST",
            answers.Nothing,
        ),
        Operation(
            "/v1/abort", endpoints.controlled("abort"), "Undo the plan that is carried out",
            control_answers.Aborted, "POST", answers.Nothing,
        ),
        Operation(
            "/v1/drain", endpoints.controlled("drain", host=str), "Empty a host", control_answers.Drained,
            "POST", answers.HostRequest,
        ),
        Operation(
            "/v1/undrain", endpoints.controlled("undrain", host=str), "Use it again", control_answers.Drained,
            "POST", answers.HostRequest,
        ),
        Operation(
            "/v1/why", endpoints.controlled("why", name=str), "Why a segment or host is placed as it is",
            control_answers.Explanation, "POST", answers.WhyRequest, role=READ,
        ),
        Operation(
            "/v1/why-not", endpoints.controlled("why-not", segment=str, host=str),
            "Why a segment is not on a host", control_answers.Explanation, "POST", answers.WhyNotRequest,
            role=READ,
        ),
        Operation(
            "/v1/what-if", endpoints.controlled("what-if", sql=str), "What would change after SQL",
            control_answers.Explanation, "POST", answers.WhatIfRequest, role=READ,
        ),
        *(
            Operation(
                f"/v1/{name}", endpoints.controlled(name, segment=str, host=str), what, control_answers.Pinned, "POST",
                answers.PinRequest,
            )
            for name, what in (("pin", "Keep a copy on a host"), ("unpin", "Let it move again"))
        ),
        Operation(
            "/v1/segments", endpoints.controlled("segments", count=int),
            "Stripe the log over another number of segments", control_answers.Resized, "POST",
            answers.SegmentsRequest,
        ),
        Operation(
            "/v1/forget", endpoints.controlled("forget", hosts=list, confirmed=bool),
            "Declare lost what only these hosts hold", control_answers.Forgotten, "POST", answers.ForgetRequest,
        ),
        Operation(
            "/v1/layout/recover", endpoints.controlled("recover-layout", confirmed=bool),
            "Go on without a majority of the layout servers", control_answers.RecoveredLayout, "POST",
            answers.ConfirmedRequest,
        ),
        Operation(
            "/v1/layout/rebalance", endpoints.controlled("rebalance", confirmed=bool),
            "Move slots from busy shards to others", control_answers.Rebalanced, "POST",
            answers.ConfirmedRequest,
        ),
    ]  # fmt: skip


def _of_the_store(endpoints: Endpoints) -> list[Operation]:
    """The embedded log, maps, and backups of them."""
    return [
        Operation(
            "/v1/streams", endpoints.streams, "The streams and maps there are", answers.Streams,
            query={"names": "1: do not ask how much there is of each"},
        ),
        Operation(
            "/v1/log/{stream}", endpoints.append, "Append a record", answers.Appended, "POST", BINARY,
            is_recorded=False,
        ),
        Operation(
            "/v1/log/{stream}", endpoints.read, "The latest records, or those from an address on",
            answers.Records,
            query={
                "address": "only the record at this address", "limit": "at most so many",
                "start": "from this address on", "most": MOST,
            },
            also="text/event-stream",
        ),
        Operation("/v1/backup", endpoints.cut, "Where the log ends, and what operators have asked for", answers.Cut),
        Operation(
            "/v1/backup/part", endpoints.part, "All records of a range, as many as fit", BINARY,
            query={"start": "the first address", "end": "one above the last, at most where the log ends"},
        ),
        Operation(
            "/v1/restore", endpoints.restore, "Begin to restore a backup, or go on with it: a pause",
            control_answers.RestoreBegun, "POST", answers.RestoreRequest,
        ),
        Operation(
            "/v1/restore/finished", endpoints.restored, "All of a backup is in the log: take its settings",
            control_answers.Paused, "POST", answers.RestoredRequest,
        ),
        Operation(
            "/v1/restore/part", endpoints.restore_part, "Put a part of a backup into an empty log",
            answers.Nothing, "POST", BINARY, is_recorded=False,
        ),
        Operation(
            "/v1/map/{name}", endpoints.entries, "The entries of a map", answers.MapEntries,
            query={"limit": "at most so many", "most": MOST, "after": "only keys behind this one"},
        ),
        Operation(
            "/v1/map/{name}", endpoints.change, "Get, set, delete or replace one key", answers.MapChange,
            "POST", answers.MapRequest, role=READ, is_recorded=False,
        ),
    ]  # fmt: skip
