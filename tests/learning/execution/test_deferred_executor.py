"""The executor of virtual time on its own: random work of several parties, kernels that write down what they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.errors import NonFiniteError, RunError
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Handle, Operation

SERVER = 0


@dataclass(frozen=True)
class Said:
    """What a random operation is to be: its party, whose promises it reads (by number), how it is run, its size.

    ``reads`` of None: nothing is declared. What has kernel 2 waits for company.
    """

    party: int
    reads: tuple[int, ...] | None
    kernel: int | None
    elements: int


@dataclass(eq=False)
class Kernel:
    """Runs alike operations by running each."""

    log: Log
    name: int

    def run(self, operations: Sequence[Operation[Any]]) -> None:
        self.log.batches.append([operation.work for operation in operations])
        for operation in operations:
            self.log.do(operation.work)


@dataclass
class Log:
    """Operations as they were said, and what ran when, and together with what."""

    said: list[Said]
    batches: list[list[int]] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.handles: list[Handle[int]] = [Handle((each.elements,), torch.float64) for each in self.said]
        kernels = [Kernel(self, name) for name in range(3)]
        self.operations = [
            Operation(
                f"kind-{each.kernel}",
                each.party,
                lambda n=n: self.alone(n),
                self.handles[n],
                nbytes=self.handles[n].nbytes,
                inputs=None if each.reads is None else [self.handles[m] for m in each.reads],
                promises=(self.handles[n],),
                kernel=None if each.kernel is None else kernels[each.kernel],
                work=n,
                waits_for_company=each.kernel == 2,
                at=(n, n / 2),
            )
            for n, each in enumerate(self.said)
        ]

    def alone(self, n: int) -> None:
        self.batches.append([n])
        self.do(n)

    def do(self, n: int) -> None:
        reads = self.said[n].reads
        self.missing += [(n, m) for m in (range(n) if reads is None else reads) if not self.handles[m].ready]
        self.ran.append(n)
        self.handles[n].set(n)


@st.composite
def work(draw: st.DrawFn, undeclared: bool = True) -> list[Said]:
    """Operations of a server and up to four clients, which read what was promised before."""
    said: list[Said] = []
    for n in range(draw(st.integers(1, 30))):
        party = draw(st.integers(0, 4))
        reads = draw(st.lists(st.integers(0, n - 1), max_size=3, unique=True)) if n else []
        declared = not undeclared or draw(st.integers(0, 9)) > 0
        kernel = draw(st.sampled_from([None, 0, 1, 2])) if party != SERVER and declared else None
        said.append(Said(party, tuple(reads) if declared else None, kernel, draw(st.integers(0, 4))))
    return said


@st.composite
def asked(draw: st.DrawFn, undeclared: bool = True) -> tuple[list[Said], list[int | None]]:
    """Work, and what is done after each submission: force one of the handles so far, or nothing."""
    said = draw(work(undeclared))
    return said, [draw(st.none() | st.integers(0, n)) for n in range(len(said))]


def carried_out(said: list[Said], forced: list[int | None], **limits: int) -> Log:
    """Submit and force, then flush; the values are right each time."""
    log, executor = Log(said), DeferredExecutor(**limits)
    for operation, place in zip(log.operations, forced, strict=True):
        executor.submit(operation)
        if place is not None:
            assert executor.force(log.handles[place]) == place
    executor.flush()
    return log


@settings(max_examples=examples(40))
@given(asked())
def test_everything_runs_once_in_its_partys_order_with_its_inputs_there(case: tuple) -> None:
    log = carried_out(*case)
    assert sorted(log.ran) == list(range(len(log.said)))
    assert log.missing == []
    for party in range(5):
        own = [n for n in log.ran if log.said[n].party == party]
        assert own == sorted(own)


@settings(max_examples=examples(40))
@given(asked())
def test_what_runs_together_is_alike_and_in_client_order(case: tuple) -> None:
    log = carried_out(*case)
    for batch in log.batches:
        parties = [log.said[n].party for n in batch]
        assert parties == sorted(set(parties))  # each once
        assert len({log.said[n].kernel for n in batch}) == 1
        if len(batch) > 1:
            assert SERVER not in parties
            assert log.said[batch[0]].kernel is not None


@settings(max_examples=examples(40))
@given(asked())
def test_the_same_submissions_and_questions_are_composed_the_same_way(case: tuple) -> None:
    assert carried_out(*case).batches == carried_out(*case).batches


@settings(max_examples=examples(40))
@given(asked(), st.integers(1, 200))
def test_a_limit_changes_when_and_never_what(case: tuple, limit: int) -> None:
    log = carried_out(*case, limit_bytes=limit, overhead=8)
    assert sorted(log.ran) == list(range(len(log.said)))
    assert log.missing == []
    assert log.batches == carried_out(*case, limit_bytes=limit, overhead=8).batches


@settings(max_examples=examples(40))
@given(work(), st.data())
def test_forcing_stops_as_soon_as_the_value_is_there(said: list[Said], data: st.DataObject) -> None:
    """And nothing runs without being asked for."""
    log, executor = Log(said), DeferredExecutor()
    for operation in log.operations:
        executor.submit(operation)
    assert log.ran == []
    place = data.draw(st.integers(0, len(said) - 1))
    assert executor.force(log.handles[place]) == place
    assert place in log.batches[-1]
    before = list(log.batches)
    for n in log.ran:
        assert executor.force(log.handles[n]) == n
    assert log.batches == before


@settings(max_examples=examples(40))
@given(work(undeclared=False))
def test_the_server_never_waits_behind_clients(said: list[Said]) -> None:
    """Whenever clients' work begins, the server's next operation is not ready."""
    log, executor = Log(said), DeferredExecutor()
    for operation in log.operations:
        executor.submit(operation)
    executor.flush()
    own = [n for n, each in enumerate(said) if each.party == SERVER]
    done: set[int] = set()
    for batch in log.batches:
        following = next((n for n in own if n not in done), None)
        if said[batch[0]].party != SERVER and following is not None:
            assert not set(said[following].reads or ()) <= done
        done.update(batch)


@settings(max_examples=examples(40))
@given(work(undeclared=False))
def test_of_what_is_ready_all_that_is_alike_runs_and_what_was_submitted_first(said: list[Said]) -> None:
    """And what waits for company comes after everything else."""
    log, executor = Log(said), DeferredExecutor()
    for operation in log.operations:
        executor.submit(operation)
    executor.flush()
    done: set[int] = set()
    for batch in log.batches:
        if said[batch[0]].party != SERVER:
            fronts = [
                next((n for n, s in enumerate(said) if s.party == p and n not in done), None) for p in range(1, 5)
            ]
            groups: dict[object, list[int]] = {}
            for n in fronts:
                if n is not None and set(said[n].reads or ()) <= done:
                    kernel = said[n].kernel
                    groups.setdefault(f"alone {n}" if kernel is None else kernel, []).append(n)
            assert batch == min(groups.values(), key=lambda group: (said[group[0]].kernel == 2, min(group)))
        done.update(batch)


def test_evaluation_waits_until_all_can_be_evaluated_together() -> None:
    """Client 1 could be at once; the others have to step first (kernel 1)."""
    said = [Said(1, (), 2, 1), Said(2, (), 1, 1), Said(2, (), 2, 1), Said(3, (), 1, 1), Said(3, (), 2, 1)]
    assert carried_out(said, [None] * 4 + [0]).batches == [[1, 3], [0, 2, 4]]


def test_a_synchronous_round_is_one_batch_a_kind() -> None:
    """Three clients embed (kernel 0), the server steps on all, they step (kernel 1): twice, forced at the end."""
    said: list[Said] = []
    for k in range(2):
        said += [Said(m, (), 0, 1) for m in (3, 1, 2)]
        said += [Said(SERVER, (7 * k, 7 * k + 1, 7 * k + 2), None, 1)]
        said += [Said(m, (7 * k + 3,), 1, 1) for m in (2, 3, 1)]
    log = carried_out(said, [None] * 13 + [13])
    assert log.batches == [[1, 2, 0], [3], [6, 4, 5], [8, 9, 7], [10], [13, 11, 12]]


def test_a_client_that_waits_does_not_hold_others_up() -> None:
    """Client 1 waits for the server, which waits for client 2: client 2's second embedding goes on its own."""
    said = [
        Said(1, (), 0, 1),
        Said(2, (), 0, 1),
        Said(2, (), 0, 1),
        Said(SERVER, (0, 2), None, 1),
        Said(1, (3,), 1, 1),
        Said(2, (3,), 1, 1),
    ]
    assert carried_out(said, [None] * 6).batches == [[0, 1], [2], [3], [4, 5]]


def test_work_that_does_not_say_what_it_reads_waits_for_all_before_it() -> None:
    said = [Said(3, (), 0, 1), Said(2, (0,), 0, 1), Said(1, None, None, 1), Said(4, (2,), 0, 1)]
    assert carried_out(said, [None] * 4).batches == [[0], [1], [2], [3]]


@pytest.mark.parametrize("party", [0, 2])
def test_an_input_that_nothing_promises_is_told(party: int) -> None:
    executor, nobodys = DeferredExecutor(), Handle()
    executor.submit(Operation("step", party, lambda: None, None, inputs=[nobodys], at=(4, 2.5)))
    name = "server" if party == SERVER else "client-2"
    with pytest.raises(RunError, match=rf"{name}, step, round 4 at 2\.5 s: step reads a value that no operation"):
        executor.flush()


def test_a_value_of_work_that_was_never_submitted_is_told() -> None:
    log, executor = Log([Said(1, (), None, 1), Said(2, (), None, 1)]), DeferredExecutor()
    executor.submit(log.operations[1])
    with pytest.raises(RunError, match="before its operation ran"):
        executor.force(log.handles[0])


class Failing:
    """A kernel that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, operations: Sequence[Operation[Any]]) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            RuntimeError("shapes"),
            RunError,
            r"client-1, embed, round 1 at 0\.5 s: embed \(with 2 others\) failed: shapes",
        ),
        (NonFiniteError("nan"), NonFiniteError, r"client-1, embed, round 1 at 0\.5 s: nan"),
        (NonFiniteError("nan", "client-3, embed"), NonFiniteError, "^client-3, embed: nan"),
    ],
)
def test_an_error_that_a_kernel_does_not_place_is_the_first_clients(error: Exception, kind: type, said: str) -> None:
    executor, kernel = DeferredExecutor(), Failing(error)
    for party in (3, 1, 2):
        executor.submit(Operation("embed", party, list, None, inputs=(), kernel=kernel, at=(party, party / 2)))
    with pytest.raises(kind, match=said):
        executor.flush()


def test_results_that_wait_are_limited_by_their_bytes_and_counted_off_when_they_have_run() -> None:
    said = [Said(1 + n % 2, (), 0, 5) for n in range(8)]  # 40 bytes each, and 10 for each operation
    log, executor = Log(said), DeferredExecutor(limit_bytes=149, overhead=10)
    ran = []
    for operation in log.operations:
        executor.submit(operation)
        ran.append(len(log.ran))
    assert ran == [0, 0, 3, 3, 3, 6, 6, 6]


@settings(max_examples=examples(40))
@given(asked())
def test_what_is_remembered_of_work_done_is_what_somebody_still_holds(case: tuple) -> None:
    said, forced = case
    log, executor = Log(said), DeferredExecutor()
    answers = []
    for operation, place in zip(log.operations, forced, strict=True):
        executor.submit(operation)
        if place is not None:
            answers.append(executor.force(log.handles[place]))
        progress = executor.progress()
        counts = {party: sum(said[n].party == party for n in log.ran) for party in range(5)}
        assert {**dict.fromkeys(range(5), 0), **progress.ran} == counts
        assert list(progress.journal) == answers
        assert {number for number, _ in progress.kept} == set(log.ran)
    held = len(said) // 2
    executor.flush()
    log.operations.clear()
    del operation, progress, log.handles[held:]
    assert {number for number, _ in executor.progress().kept} == set(range(held))


def test_thousands_of_rounds_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.learning.execution.deferred_executor._LOOKED_AFTER", 10)
    executor = DeferredExecutor()
    for n in range(300):
        handle: Handle[int] = Handle()
        executor.submit(Operation("embed", 1, lambda h=handle: h.set(1), handle, inputs=(), promises=(handle,)))
        if n % 3 == 0:
            executor.flush()
    executor.flush()
    assert len(executor._alive) <= 20
    assert executor._awaited == {}
    assert executor._bytes == 0
