"""Vflsim's own learners keep the rules that learners from outside have to keep."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept_runs import KeptAt, interrupted, whole
from protocols_by_kind import KINDS, SOME
from tiny_worlds import EAGER, RANDOM_TIMING, raw, run

from vflsim.learning.learners import watch
from vflsim.learning.learners.party import PartyLearner
from vflsim.scenario import load
from vflsim.simulation import build


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", SOME)
def test_learners_of_vflsim_change_nothing_that_checkpoints_do_not_keep(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: set[int] = set()

    class Watch(watch.Watch):
        def __init__(self, learner: PartyLearner, seed: int) -> None:
            super().__init__(learner, seed)
            self._looks = True

        def compare(self, before: watch.Unkept) -> None:
            compared.add(self._learner.party)
            super().compare(before)

    scenario = load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, stop={"rounds": 3}, evaluate={"every": "1 rounds"}))
    monkeypatch.setattr(build, "brings_code", lambda *_: True)
    monkeypatch.setattr(build, "Watch", Watch)
    outcome, last = whole(scenario, execution=EAGER)
    interrupted(scenario, tmp_path, [last * 3 // 4], execution=EAGER)
    resumed = run(scenario, keeper=KeptAt(tmp_path), execution=EAGER)
    assert 0 in compared
    assert all(tensor.equal(resumed.weights[name]) for name, tensor in outcome.weights.items())
