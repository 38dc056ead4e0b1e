import copy
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vflsim
from vflsim.errors import NonFiniteError, RunError
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Handle, ImmediateExecutor, Operation, TimingOnlyExecutor


def test_a_handle_knows_its_bytes_before_its_value() -> None:
    handle: Handle[torch.Tensor] = Handle((7, 3), torch.float64)
    assert handle.nbytes == 7 * 3 * 8
    assert not handle.ready
    assert Handle((5,), torch.float32).nbytes == 20


def test_reading_a_handle_too_early_is_an_error() -> None:
    with pytest.raises(RunError, match="before its operation ran"):
        _ = Handle().value


@pytest.mark.parametrize(
    ("use", "asked"),
    [
        (lambda handle: handle.norm(), "'norm'"),
        (lambda handle: handle * 2, "arithmetic"),
        (lambda handle: 1 - handle, "arithmetic"),
        (lambda handle: handle[0], "arithmetic"),
        (lambda handle: handle > 1, "arithmetic"),
        (float, "arithmetic"),
        (torch.relu, "torch.relu"),
        (lambda handle: torch.ones(3) + handle, "arithmetic"),
        (lambda handle: torch.clamp(handle, max=1), "torch.clamp"),
    ],
)
def test_a_handle_that_is_taken_for_a_tensor_says_what_it_is_and_where(
    use: Callable[[Handle[Tensor]], object], asked: str
) -> None:
    with pytest.raises(RunError, match=f"there is no {asked}.* of a handle .*test_operations.py:") as caught:
        use(Handle((3,)))
    assert "ClientLearner or ServerLearner" in caught.value.remedy
    assert "docs/adding-a-protocol.md, Clip a gradient" in caught.value.remedy


def test_a_handle_has_no_other_attributes_and_can_be_copied() -> None:
    handle: Handle[Tensor] = Handle((3,))
    assert not hasattr(handle, "norm")
    assert not hasattr(handle, "__array__")
    assert copy.copy(handle).shape == (3,)


def test_a_handle_holds_what_it_was_given() -> None:
    handle: Handle[float] = Handle()
    handle.set(0.5)
    assert handle.ready
    assert handle.value == 0.5


def test_making_an_operation_runs_nothing() -> None:
    ran: list[int] = []
    operation = Operation("embed", 1, lambda: ran.append(1), None)
    assert ran == []
    assert operation.flops() == 0
    assert operation.units == 1


def test_a_deferred_value_is_computed_when_it_is_first_read_and_only_then() -> None:
    calls: list[int] = []
    handle: Handle[int] = Handle()
    handle.defer(lambda: calls.append(1) or 7)
    assert handle.ready
    assert calls == []
    assert handle.value == handle.value == 7
    assert calls == [1]


def test_an_operation_is_known_by_a_weak_reference() -> None:
    operation = Operation("embed", 1, lambda: None, None)
    known = weakref.ref(operation)
    assert known() is operation
    del operation
    assert known() is None


def test_no_class_relies_on_the_weak_references_of_data_classes() -> None:
    """``weakref_slot`` gives a generic class no slot in CPython 3.12.3, which Ubuntu 24.04 has."""
    text = "".join(file.read_text() for file in Path(vflsim.__file__).parent.rglob("*.py"))
    assert "slots=True" in text
    assert "weakref_slot=" not in text


class Log:
    """Operations that write down when they run."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def operation(self, number: int, elements: int = 1, fail: Exception | None = None) -> Operation[Handle[int]]:
        handle: Handle[int] = Handle((elements,), torch.float64)

        def run() -> None:
            self.ran.append(number)
            if fail is not None:
                raise fail
            handle.set(number)

        return Operation("embed", 1, run, handle, nbytes=handle.nbytes, at=(3, 2.0))


@pytest.fixture
def log() -> Log:
    return Log()


def test_deferred_work_waits_until_a_value_is_needed_and_then_runs_in_order(log: Log) -> None:
    executor = DeferredExecutor()
    operations = [log.operation(k) for k in range(4)]
    for operation in operations:
        executor.submit(operation)
    assert log.ran == []
    assert executor.force(operations[2].result) == 2
    assert log.ran == [0, 1, 2]
    assert executor.force(operations[0].result) == 0
    assert log.ran == [0, 1, 2]
    executor.flush()
    assert log.ran == [0, 1, 2, 3]
    executor.flush()
    assert log.ran == [0, 1, 2, 3]


def test_deferred_work_that_was_never_submitted_never_runs(log: Log) -> None:
    executor = DeferredExecutor()
    abandoned = log.operation(0)
    executor.submit(log.operation(1))
    executor.flush()
    assert log.ran == [1]
    with pytest.raises(RunError, match="before its operation ran"):
        executor.force(abandoned.result)


def test_deferred_work_runs_when_its_results_would_exceed_the_limit(log: Log) -> None:
    executor = DeferredExecutor(limit_bytes=100, overhead=0)
    for k in range(3):
        executor.submit(log.operation(k, elements=5))  # 40 bytes each
        assert log.ran == ([] if k < 2 else [0, 1, 2])
    executor.submit(log.operation(3, elements=5))
    assert log.ran == [0, 1, 2]


@pytest.mark.parametrize("make", [DeferredExecutor, ImmediateExecutor])
def test_an_error_names_the_party_the_round_and_the_time_of_its_operation(make: type, log: Log) -> None:
    executor = make()

    def work() -> None:
        executor.submit(log.operation(0, fail=NonFiniteError("the loss is nan", remedy="slower")))
        executor.flush()

    with pytest.raises(NonFiniteError, match=r"client-1, embed, round 3 at 2 s: the loss is nan\n  remedy: slower"):
        work()


def test_an_error_that_knows_its_place_keeps_it(log: Log) -> None:
    with pytest.raises(NonFiniteError, match="elsewhere: nan"):
        ImmediateExecutor().submit(log.operation(0, fail=NonFiniteError("nan", "elsewhere")))


@pytest.mark.parametrize("error", [RuntimeError("shapes"), KeyError("name"), ZeroDivisionError("by zero")])
def test_whatever_a_model_raises_is_an_error_of_the_run_with_its_cause(error: Exception, log: Log) -> None:
    with pytest.raises(RunError, match="client-1, embed, round 3 at 2 s: embed failed") as caught:
        ImmediateExecutor().submit(log.operation(0, fail=error))
    assert caught.value.__cause__ is error


def test_immediate_work_runs_at_once(log: Log) -> None:
    executor = ImmediateExecutor()
    operation = log.operation(5)
    executor.submit(operation)
    assert log.ran == [5]
    assert executor.force(operation.result) == 5
    executor.flush()


def test_timing_only_runs_nothing_and_has_no_values(log: Log) -> None:
    executor = TimingOnlyExecutor()
    operation = log.operation(0)
    executor.submit(operation)
    executor.flush()
    assert log.ran == []
    assert not executor.values
    with pytest.raises(RunError, match="timing-only"):
        executor.force(operation.result)


def test_operations_without_results_count_towards_the_limit_too(log: Log) -> None:
    executor = DeferredExecutor(limit_bytes=100, overhead=30)
    for k in range(4):
        executor.submit(log.operation(k, elements=0))
        assert log.ran == ([] if k < 3 else [0, 1, 2, 3])
