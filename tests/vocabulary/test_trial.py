"""The trial of users' classes: what is asked twice, and in the other order, is compared; what else it refuses."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import tried_out
from vflsim.vocabulary.trial import ContractError, Trial, alike, first_difference, is_number, told


class Mine(Part):
    """Answers what a function answers."""

    kind: str = "mine"


def asked(*calls: Callable[..., Any], given: Any = 3) -> None:
    trial = Trial(Mine())
    for call in calls:
        trial.ask("value", given, where="for all", call=call)
    trial.end()


COUNT: list[int] = []


def writes(x: Any) -> int:
    x[0] = 7
    return 1


@pytest.mark.parametrize(
    ("calls", "given", "says"),
    [
        ([lambda _: COUNT.append(1) or len(COUNT)], 3, r"Mine\.value gives \d+, then \d+ for all; allowed: the same"),
        ([lambda _: random.random()], 3, "draws from Python's global generator for all"),
        ([lambda _: np.random.rand()], 3, "draws from NumPy's global generator for all"),
        ([lambda _: torch.rand(2)], 3, "draws from PyTorch's global generator for all"),
        ([lambda _: torch.rand(2) * 0], 3, "draws from PyTorch's global generator"),
        ([writes], torch.zeros(2), "changes what it is given for all; allowed: only to read it; copy it; mend 'value'"),
        ([writes], np.zeros(2), "changes what it is given"),
        ([lambda table: table.insert(0, "b", 1)], pd.DataFrame({"a": [1]}), "changes what it is given"),
    ],
)
def test_what_does_not_repeat_itself_or_changes_things_is_named(calls: Any, given: Any, says: str) -> None:
    with pytest.raises(ContractError, match=says):
        asked(*calls, given=given)


def test_what_depends_on_the_order_of_questions_is_found_in_the_other_order() -> None:
    largest = [0]

    def first(x: int) -> int:
        return largest[0]

    def second(x: int) -> int:
        largest[0] = x
        return x

    with pytest.raises(ContractError, match="gives 0, then 3"):
        asked(first, second)
    asked(second)


@pytest.mark.parametrize(
    "value",
    [1, 0.5, math.nan, "a", None, b"a", (1, math.nan), [torch.tensor([1.0, math.nan])], np.array([math.nan, 2.0]),
     np.float64(math.nan), pd.DataFrame({"a": [1.0, math.nan]}), torch.tensor(2.0), np.array([True])],
    ids=repr,
)  # fmt: skip
def test_the_same_to_the_bit_is_alike(value: Any) -> None:
    assert alike(value, value)
    asked(lambda _: value)


@pytest.mark.parametrize(
    ("one", "two", "difference"),
    [
        (1.0, 2.0, (1.0, 2.0)),
        ((1, (2, 3)), (1, (2, 4)), (3, 4)),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), (2.0, 3.0)),
        (np.array([1, 2]), np.array([5, 2]), (1, 5)),
        (math.nan, 1.0, None),
        (torch.zeros(2), torch.zeros(3), None),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64), None),
        (np.float64(1), np.float64(2), (1.0, 2.0)),
        ([1], [1, 2], ([1], [1, 2])),
    ],
)
def test_the_first_difference_is_told(one: Any, two: Any, difference: Any) -> None:
    assert not alike(one, two)
    first = first_difference(one, two)
    assert all(isinstance(told(each), str) for each in first)
    assert difference is None or first == difference


def test_a_mistake_of_the_trial_names_the_file_and_other_failures_their_place() -> None:
    def breaks(trial: Trial) -> None:
        trial.fact("kind", is_number(least=0), "a number")

    def fails(trial: Trial) -> None:
        raise LookupError("no row")

    with pytest.raises(ValueError, match=r"Mine\.kind is 'mine'; allowed: a number; mend 'kind' of .*test_trial\.py"):
        tried_out(Mine(), breaks)
    with pytest.raises(ValueError, match=r"Mine fails: LookupError: no row; remedy: mend it; .*test_trial\.py:\d+, f"):
        tried_out(Mine(), fails)
    assert tried_out(part := Mine()) is part


@pytest.mark.parametrize(
    ("value", "fits"), [(0, True), (0.5, True), (-1, False), (math.nan, False), (math.inf, False), (True, False)]
)
def test_numbers_are_numbers(value: Any, fits: bool) -> None:
    assert is_number(least=0)(value) == fits
