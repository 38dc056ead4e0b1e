"""An executor that takes over from another one: the same operations run, in the same order and company."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from vflsim.errors import CheckpointError
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Handle, Operation

CLIENTS = (1, 2, 3)


class Parties:
    """Parties whose state is a number, and operations that read it, move it, and write down who ran with whom."""

    def __init__(self) -> None:
        self.states = dict.fromkeys((0, *CLIENTS), 1)
        self.log: list[tuple[int, ...]] = []
        self.kernels = [_Kernel(self), _Kernel(self)]

    def operation(self, party: int, kind: int, inputs: Sequence[Handle[int]]) -> Operation[Handle[int]]:
        """``kind`` 0 and 1 run together with their like, 2 alone."""
        result: Handle[int] = Handle((5,))
        operation: Operation[Handle[int]] = Operation("embed", party, lambda: None, result, nbytes=40)
        operation.run = lambda: self.do([operation])
        operation.inputs, operation.promises = inputs, (result,)
        if party and kind < 2:
            operation.kernel = self.kernels[kind]
        return operation

    def do(self, operations: Sequence[Operation[Any]]) -> None:
        """Whose result depends on who is there."""
        self.log.append(tuple(operation.number for operation in operations))
        for operation in operations:
            state = self.states[operation.party]
            value = hash((state, len(self.log[-1]), *(handle.value for handle in operation.inputs or ())))
            self.states[operation.party] = value
            operation.result.set(value)


class _Kernel:
    def __init__(self, parties: Parties) -> None:
        self._parties = parties

    def run(self, operations: Sequence[Operation[Any]]) -> None:
        self._parties.do(operations)


class Step(NamedTuple):
    """Submit an operation of ``party`` that reads what earlier steps promised; then force some result, or all."""

    party: int
    kind: int
    reads: tuple[int, ...]
    forces: int | None
    forgets: int


def steps() -> st.SearchStrategy[list[Step]]:
    back = st.integers(1, 6)
    one = st.builds(
        Step,
        party=st.sampled_from((0, *CLIENTS)),
        kind=st.integers(0, 2),
        reads=st.lists(back, max_size=2).map(tuple),
        forces=st.none() | st.none() | back,
        forgets=st.integers(0, 12),
    )
    return st.lists(one, min_size=1, max_size=40)


class Play:
    """Carries steps out. Results older than a step ``forgets`` are held by nobody but queued operations."""

    def __init__(self, executor: DeferredExecutor) -> None:
        self.executor, self.parties = executor, Parties()
        self.results: list[Handle[int] | None] = []
        self.forced: list[int] = []

    def go(self, steps: Sequence[Step]) -> None:
        for step in steps:
            found = [self.results[-back] for back in step.reads if back <= len(self.results)]
            inputs = [handle for handle in found if handle is not None]
            operation = self.parties.operation(step.party, step.kind, inputs)
            self.results.append(operation.result)
            self.executor.submit(operation)
            if step.forces is not None and step.forces <= len(self.results):
                handle = self.results[-step.forces]
                if handle is not None:
                    self.forced.append(self.executor.force(handle))
            for old in range(max(0, len(self.results) - step.forgets - 6)):
                self.results[old] = None


@given(steps(), st.data())
def test_an_executor_that_replays_another_goes_on_as_that_one_would_have(said: list[Step], data: st.DataObject) -> None:
    check(said, data.draw(st.integers(0, len(said))), data.draw(st.sampled_from((100, 1000, 10**6))))


def test_when_something_became_ready_makes_no_difference() -> None:
    """Client 1 was asked first and waited for the server, client 2 was ready at once."""
    said = [Step(0, 2, (), None, 9), Step(1, 0, (1,), None, 9), Step(2, 1, (), 3, 9)]
    check(said, len(said))


def test_when_somebody_began_to_wait_makes_no_difference() -> None:
    """Client 1 was asked first, and has something else to do before it begins to wait."""
    said = [
        Step(1, 2, (), None, 9),
        Step(3, 2, (), None, 9),
        Step(0, 2, (1,), None, 9),
        Step(1, 0, (1,), None, 9),
        Step(2, 1, (2,), 5, 9),
    ]
    check(said, len(said))


def check(said: Sequence[Step], cut: int, limit: int = 10**6) -> None:
    """Do what is ``said``, up to the ``cut`` a second time by a replay."""
    whole = Play(DeferredExecutor(limit, overhead=0))
    whole.go(said[:cut])
    log = list(whole.parties.log)
    progress = whole.executor.progress()
    assert whole.parties.log == log, "looking runs nothing"
    values = {key: handle.value for key, handle in progress.kept.items()}
    states = dict(whole.parties.states)
    again = Play(DeferredExecutor(limit, overhead=0))
    again.executor.replay(progress.ran, progress.journal, progress.kept.keys())
    again.go(said[:cut])
    assert again.parties.log == [], "a replay runs nothing"
    assert again.forced == whole.forced
    again.parties.states = states
    for key, handle in again.executor.recalled.items():
        handle.set(values[key])
    again.executor.resume()
    second = again.executor.progress()
    assert (second.ran, second.journal) == (progress.ran, progress.journal)
    assert second.kept.keys() <= progress.kept.keys(), "what is garbage by now was not, perhaps"

    for play in (whole, again):
        play.go(said[cut:])
        play.executor.flush()
    assert again.parties.log == whole.parties.log[len(log) :]
    assert again.forced == whole.forced
    assert again.parties.states == whole.parties.states


def test_only_values_that_somebody_still_holds_are_kept() -> None:
    gc.freeze()  # the collector need not look at what other tests have left
    play = Play(DeferredExecutor())
    play.go([Step(1, 2, (), 1, 99)] * 3)
    assert sorted(play.executor.progress().kept) == [(0, 0), (1, 0), (2, 0)]
    play.results[1] = None
    gc.collect()
    assert sorted(play.executor.progress().kept) == [(0, 0), (2, 0)]


def replayed(done: list[Step]) -> Play:
    first, again = Play(DeferredExecutor()), Play(DeferredExecutor())
    first.go(done)
    progress = first.executor.progress()
    again.executor.replay(progress.ran, progress.journal, progress.kept.keys())
    return again


def test_a_replay_that_asks_for_more_is_refused() -> None:
    again = replayed([Step(1, 2, (), 1, 0)])
    with pytest.raises(CheckpointError, match="asks for a value that the run had not asked for"):
        again.go([Step(1, 2, (), 1, 0)] * 2)


def test_a_replay_that_asks_for_less_is_refused() -> None:
    again = replayed([Step(1, 2, (), 1, 0)] * 2)
    again.go([Step(1, 2, (), 1, 0), Step(1, 2, (), None, 0)])
    with pytest.raises(CheckpointError, match="asked for 1 values, and 2 had been"):
        again.executor.resume()


def test_a_replay_that_does_less_is_refused() -> None:
    again = replayed([Step(1, 2, (), None, 0), Step(1, 2, (), 1, 0)])
    again.go([Step(1, 2, (), 1, 0)])
    with pytest.raises(CheckpointError, match="did 1 operations, fewer than the 2 that had run"):
        again.executor.resume()


def test_a_replay_that_promises_less_is_refused() -> None:
    again = replayed([Step(1, 2, (), 1, 0), Step(2, 2, (), 1, 0)])
    again.go([Step(2, 2, (), 1, 0)])
    again.parties.operation(1, 2, ())
    silent: Operation[None] = Operation("step", 1, lambda: None, None)
    again.executor.submit(silent)
    again.executor.force(Handle())
    with pytest.raises(CheckpointError, match="does not promise all the values"):
        again.executor.resume()
