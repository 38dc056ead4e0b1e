"""What ends a run, on events and on arrays: each rule at its limit, and what a rule of one class gets by itself."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from both_paths import quick
from tiny_worlds import RANDOM_TIMING, data_of, tiny

from vflsim.books import Counts
from vflsim.intervals import steady_mean
from vflsim.scenario.models import Scenario
from vflsim.simulation.reporter import Progress
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.standstill import awaited_by
from vflsim.simulation.vectorised import run_vectorised
from vflsim.stopping import RULES, Stop
from vflsim.stopping.end_rule import CountLimit, RoundFacts, Tally, share_of
from vflsim.stopping.precision import FIRST, checkpoints
from vflsim.studies.runs.identity import ends_alike, hindrance

SYNCHRONOUS, OWN_PACE = {"kind": "synchronous"}, {"kind": "asynchronous"}
Path = Callable[[Scenario], Outcome]


def by_events(scenario: Scenario) -> Outcome:
    return run_protocol(scenario, "it", 0, data_of(scenario, "it"), timing_only=True)


def by_arrays(scenario: Scenario) -> Outcome:
    return run_vectorised(scenario, "it", 0, data_of(scenario, "it"))


BOTH = pytest.mark.parametrize("path", [by_events, by_arrays])


def played(path: Path, protocol: dict[str, Any], **stop: Any) -> Outcome:
    outcome = path(quick(protocol, stop=stop, timing=RANDOM_TIMING))
    assert outcome.error is None
    assert outcome.tables.rounds is not None
    return outcome


def reason(outcome: Outcome) -> tuple[str | None, int, int]:
    return outcome.info.stop_reason, outcome.info.counts["rounds"], outcome.info.counts["updates"]


def ends_of(outcome: Outcome) -> list[float]:
    assert outcome.tables.rounds is not None
    ends: list[float] = outcome.tables.rounds.column("end_s").to_pylist()
    return ends


def test_progress_of_arrays_counts_the_epochs_of_clients_at_their_own_pace() -> None:
    told, scenario = list[Progress](), quick(OWN_PACE, stop={"epochs": 400}, timing=RANDOM_TIMING)
    run_vectorised(scenario, "it", 0, data_of(scenario, "it"), report=told.append)
    shares = [each.share for each in told]
    assert 0 < shares[0] < shares[-1] == 1.0


def test_rounds_and_epochs_alone_tell_how_many_rounds_wait_for_all() -> None:
    stop = Stop.model_validate({"rounds": 30, "epochs": 2.5, "updates": 7, "time": 9, "precision": 0.1})
    most = {rule.key: rule.rounds_at_most(per_epoch=11) for rule in stop.each()}
    assert most.pop("rounds") == 30
    assert most.pop("epochs") == 28
    assert set(most.values()) == {math.inf}


def test_every_key_of_stop_has_a_rule_of_its_name() -> None:
    assert [*Stop.model_fields] == [*RULES]
    assert all(rule.key == key for key, rule in RULES.items())


@pytest.mark.sampled(4)
@BOTH
@pytest.mark.parametrize("rounds", [1, 7, 64, 65])
def test_rounds_end_with_the_last_of_them(path: Path, rounds: int) -> None:
    assert reason(played(path, SYNCHRONOUS, rounds=rounds)) == ("rounds", rounds, 4 * (rounds - 1))
    assert reason(played(path, OWN_PACE, rounds=rounds))[:2] == ("rounds", rounds)


@BOTH
@pytest.mark.parametrize("updates", [1, 13, 270])
def test_updates_end_with_the_last_of_them(path: Path, updates: int) -> None:
    for protocol in (SYNCHRONOUS, OWN_PACE):
        why, rounds, counted = reason(played(path, protocol, updates=updates, rounds=2000))
        assert (why, counted) == ("updates", updates)
        assert rounds > 0
    assert reason(played(path, SYNCHRONOUS, updates=updates, rounds=2000))[1] == (updates + 3) // 4


@BOTH
def test_epochs_end_with_the_round_that_completes_them(path: Path) -> None:
    batches = -(-data_of(tiny()).rows // 20)
    assert reason(played(path, SYNCHRONOUS, epochs=3, rounds=2000))[:2] == ("epochs", 3 * batches)
    assert reason(played(path, SYNCHRONOUS, epochs=3.01, rounds=2000))[:2] == ("epochs", 3 * batches + 1)
    outcome = played(path, OWN_PACE, epochs=3, rounds=2000)
    used = sum(map(len, outcome.tables.rounds.column("used").to_pylist())) if outcome.tables.rounds else 0
    assert (outcome.info.stop_reason, used) == ("epochs", 3 * 4 * batches)


@pytest.mark.sampled(2)
@BOTH
@pytest.mark.parametrize(("asked", "later"), [(0.5, False), (0.05, True)])
def test_precision_ends_at_the_first_checkpoint_that_is_precise(path: Path, asked: float, later: bool) -> None:
    durations = np.diff([0.0, *ends_of(played(path, SYNCHRONOUS, rounds=3000))])

    def precise(rounds: int) -> bool:
        found = steady_mean(durations[:rounds])
        return found.sound and found.independent >= found.n / 2 and found.half_width <= asked * found.mean

    first = next(rounds for rounds in checkpoints() if precise(rounds))
    assert (first > FIRST) is later
    assert reason(played(path, SYNCHRONOUS, precision=asked, rounds=5000))[:2] == ("precision", first)


@BOTH
def test_time_ends_after_all_of_its_instant(path: Path) -> None:
    ends = ends_of(played(path, SYNCHRONOUS, rounds=9))
    assert reason(played(path, SYNCHRONOUS, time=ends[4], rounds=9))[:2] == ("time", 5)
    assert reason(played(path, SYNCHRONOUS, time=float(np.nextafter(ends[4], 0)), rounds=9))[:2] == ("time", 4)


@BOTH
@pytest.mark.parametrize(
    ("stop", "why"),
    [
        ({"rounds": 10, "epochs": 2, "updates": 37, "time": 100}, "rounds"),
        ({"rounds": 11, "epochs": 2, "updates": 37, "time": 100}, "epochs"),
        ({"rounds": 10, "updates": 36}, "updates"),
        ({"rounds": 10, "updates": 36, "time": 1e-3}, "time"),
    ],
)
def test_the_first_of_several_ends_a_run(path: Path, stop: dict[str, Any], why: str) -> None:
    batches = -(-data_of(tiny()).rows // 20)
    assert batches == 5
    assert played(path, SYNCHRONOUS, **stop).info.stop_reason == why


class EmbeddingsRule(CountLimit):
    key: ClassVar[str] = "embeddings"

    def done(self, tally: Counts) -> float:
        return tally.embeddings_used


class StopByEmbeddings(Stop):
    embeddings: int | None = None


@BOTH
def test_a_rule_is_a_class_a_key_and_a_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "embeddings", EmbeddingsRule)
    stop = StopByEmbeddings(embeddings=30, rounds=99)
    outcome = path(quick(SYNCHRONOUS, timing=RANDOM_TIMING).model_copy(update={"stop": stop}))
    assert reason(outcome)[:2] == ("embeddings", 8)  # of four clients
    place = {"time": 1.0, "rounds": 8, "updates": 28, "wall_clock": 1.0}
    later = stop.model_copy(update={"embeddings": 31})
    assert hindrance(place, stop.plain(), later.plain()) == ""
    assert hindrance(place, later.plain(), stop.plain()) == "embeddings"
    assert ends_alike("embeddings", place, stop.plain(), stop.plain())
    done = replace(Tally(rounds=5), embeddings_used=20)
    assert share_of(stop.each(), done) == 20 / 30
    assert stop.each()[1].rounds_needed(done, np.ones(5)) == 7.5
    assert awaited_by(stop.each(RoundFacts()), "seconds") == {"round"}
