"""Vflsim's own learners keep the rules that learners from outside have to keep."""

from __future__ import annotations

import pytest
from protocols_by_kind import KINDS, SOME
from tiny_worlds import EAGER, RANDOM_TIMING, raw, run

from vflsim.learning.learners import watch
from vflsim.learning.learners.attribute_changes import Attributes
from vflsim.learning.learners.party import PartyLearner
from vflsim.scenario import load
from vflsim.simulation import build


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", SOME)
def test_learners_of_vflsim_change_nothing_that_checkpoints_do_not_keep(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[PartyLearner] = []

    class Watch(watch.Watch):
        def __init__(self, learner: PartyLearner, seed: int, refuses: bool, burst: watch.Burst) -> None:
            super().__init__(learner, seed, refuses, burst)
            self._looks = True

        def _attributes(self) -> Attributes:
            looked.append(self._learner)
            return super()._attributes()

    scenario = load(raw({"it": KINDS[kind]}, timing=RANDOM_TIMING, stop={"rounds": 3}, evaluate={"every": "1 rounds"}))
    plain = run(scenario, execution=EAGER)
    monkeypatch.setattr(build, "brings_code", lambda *_: True)
    monkeypatch.setattr(build, "Watch", Watch)
    watched = run(scenario, execution=EAGER)
    assert 0 in {learner.party for learner in looked}
    assert all(tensor.equal(watched.weights[name]) for name, tensor in plain.weights.items())
