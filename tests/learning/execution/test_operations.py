import ast
import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vflsim
from vflsim.errors import RunError
from vflsim.learning.execution.operations import Handle, Operation


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
    assert "docs/adding-a-protocol.md, Changing a value" in caught.value.remedy


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
    gc.collect()
    assert known() is None


def test_no_class_relies_on_the_weak_references_of_data_classes() -> None:
    """``weakref_slot`` gives a generic class no slot in CPython 3.12.3, which Ubuntu 24.04 has."""
    files = sorted(Path(vflsim.__file__).parent.rglob("*.py"))
    words = {
        word.arg for file in files for word in ast.walk(ast.parse(file.read_bytes())) if isinstance(word, ast.keyword)
    }
    assert "slots" in words
    assert "weakref_slot" not in words
