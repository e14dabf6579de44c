"""Bundles: a solve saved and solved again to the same answer."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from io import BytesIO

import pytest

from mgmt.compiler.model import Model
from mgmt.errors import DataError, InfeasibleError, VerificationError
from mgmt.explaining.solutions.difference import diff
from mgmt.explaining.solutions.replay_bundle import Bundle, answer_of, bundle_of, bundle_of_error
from tests.mgmt.test_solving import POLICY, LyingBackend, state_of


def test_a_bundle_is_solved_again_to_the_same_answer() -> None:
    state = state_of(2)
    model = Model.build(state, [("rules.sql", POLICY)])
    bundle = bundle_of(model, seed=7, budget=20.0)
    solution = model.solve(20.0, 7)
    state.execute("DELETE FROM task")
    replayed = Bundle.load(bundle.save())
    assert replayed == bundle
    again = replayed.model().solve(replayed.budget, replayed.seed)
    assert answer_of(again) == answer_of(solution)
    assert again.version == solution.version
    assert [text.name for text in replayed.policies] == ["rules.sql"]


def test_a_replay_is_solved_at_the_time_of_its_bundle() -> None:
    """So that a cooldown which held then still holds."""
    state = state_of(1)
    prefer = (
        "CREATE CONSTRAINT last AS SELECT * FROM task WHERE variable__host = 'h3' MAXIMIZE count(*) WEIGHT 9"
    )
    state.apply(Model.build(state, POLICY).solve(), 1000.0)
    model = Model.build(state, [("rules.sql", f"SET cooldown = 60; {POLICY} {prefer}")])
    replayed = Bundle.load(bundle_of(model, now=1001.0).save())
    assert replayed.now == 1001.0
    assert not replayed.model().solve(now=replayed.now).deltas
    assert replayed.model().solve(now=1060.0).deltas


def test_the_plan_in_a_bundle_is_read_without_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(2)
    model = Model.build(state, [("rules.sql", POLICY)])
    bundle = bundle_of(model)
    solution = model.solve()
    with pytest.raises(DataError, match="keeps no answer"):
        bundle.solution()
    saved = Bundle.load(replace(bundle, answer=answer_of(solution)).save())
    monkeypatch.setattr(Model, "solve", lambda *_: pytest.fail("it was solved"))
    kept = saved.solution()
    assert answer_of(kept) == answer_of(solution)
    assert not diff(solution, kept)
    assert (kept.deltas, kept.version) == (solution.deltas, solution.version)


def test_that_there_is_no_plan_is_kept_with_what_clashes() -> None:
    model = Model.build(state_of(3), [("rules.sql", POLICY)])
    bundle = replace(bundle_of(model), answer={"status": "infeasible", "core": ["apart"]})
    with pytest.raises(InfeasibleError, match=r"apart \(rules.sql:\d+:\d+\)"):
        Bundle.load(bundle.save()).solution()


def test_an_answer_that_was_changed_is_found_out() -> None:
    model = Model.build(state_of(2), POLICY)
    answer = answer_of(model.solve())
    (place,) = answer["decisions"]
    same = [[key, "h0"] for key, _ in answer["decisions"][place]]
    for changed, said in (
        ({**answer, "decisions": {place: same}}, "none to its rows and policies: apart"),
        ({**answer, "decisions": {place: same[:1]}}, "none to its rows and policies|cannot be read"),
        ({**answer, "decisions": {}}, "cannot be read"),
        ({**answer, "decisions": {place: 7}}, "cannot be read"),
        ({**answer, "status": "splendid"}, "cannot be read"),
        ({}, "cannot be read"),
    ):
        with pytest.raises(DataError, match=said):
            replace(bundle_of(model), answer=changed).solution()


def test_an_infeasible_state_is_a_bundle_too() -> None:
    bundle = bundle_of(Model.build(state_of(3), POLICY))
    with pytest.raises(InfeasibleError) as caught:
        Bundle.load(bundle.save()).model().solve()
    assert answer_of(caught.value) == {"status": "infeasible", "core": ["apart"]}


def test_what_a_verification_error_keeps_can_be_replayed() -> None:
    policy = POLICY + "CREATE CONSTRAINT h AS SELECT * FROM task CHECK id = 1 OR variable__host = 'h0';"
    model = Model.build(state_of(2, hosts=2), policy, backend=LyingBackend())
    with pytest.raises(VerificationError) as caught:
        model.solve(seed=4)
    bundle = Bundle.load(bundle_of_error(caught.value).save())
    assert bundle.seed == 4
    assert bundle.model().solve().value("task", "variable__host", 0) == "h0", (
        "without the lie it can be solved"
    )


def test_what_is_no_bundle_is_refused() -> None:
    for contents in (b"", b"PK\x03\x04 and then nothing", b'{"format": 1}'):
        with pytest.raises(DataError, match="this is no bundle"):
            Bundle.load(contents)
    good = bundle_of(Model.build(state_of(1), POLICY)).save()
    with zipfile.ZipFile(BytesIO(good)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def changed(name: str, contents: bytes | None) -> bytes:
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for part, original in parts.items():
                if part != name or contents is not None:
                    archive.writestr(part, original if part != name else contents or b"")
        return buffer.getvalue()

    for name, contents in (("bundle.json", b"[]"), ("bundle.json", None), ("state.json", None)):
        with pytest.raises(DataError, match="this is no bundle"):
            Bundle.load(changed(name, contents))
    with pytest.raises(DataError, match="format 99"):
        Bundle.load(changed("bundle.json", b'{"format": 99}'))
    with pytest.raises(DataError, match="rows of the bundle"):
        Bundle.load(changed("state.json", b"no database at all")).model().solve()
