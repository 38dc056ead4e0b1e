"""Checks a user's own loss on as many rows as mini-batches and splits have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from vflsim.learning.learners.watch import from_outside
from vflsim.learning.loss_trial import try_out_at
from vflsim.scenario.models import Scenario
from vflsim.scenario.problems import Problem
from vflsim.scenario.resolve import location_of
from vflsim.setting import Setting
from vflsim.vocabulary.imported import tried_out


def own_loss_problems(scenario: Scenario, settings: Mapping[str, Setting]) -> Iterator[Problem]:
    """Yield the mistakes of users' own losses that a few rows do not show; the first protocol that has each."""
    known = set[object]()
    for name, resolved in settings.items():
        training, data = scenario.training_of(name), resolved.data
        batches = scenario.protocols[name].protocol.batch_plan().batches(data.rows, training, 0)
        rows = {training.batch_of(data.rows), batches.smallest, *(len(each) for each in data.labels.values())} - {0}
        key = training.loss, training.dtype, frozenset(rows)
        if not from_outside(training.loss) or key in known:
            continue
        known.add(key)
        trial = partial(try_out_at, training.loss, data.task.name, data.outputs, training.torch_dtype, sorted(rows))
        try:
            tried_out(training.loss, trial)
        except ValueError as error:
            yield Problem.of_message(location_of(scenario, name, "training", "loss"), str(error))
