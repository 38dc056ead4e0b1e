"""Checks against the data ask alike parties once: their cost does not grow with the number of clients."""

from typing import Any

import pytest
from tiny_worlds import tiny
from torch import nn

from vflsim.errors import ScenarioError
from vflsim.scenario.models import Scenario
from vflsim.studies.checks import data
from vflsim.studies.checks.data import read_and_check

LINEAR = {"kind": "linear", "embedding": 4}


def one_row_left(clients: int, models: Any) -> Scenario:
    """Batches of 20 of 81 rows leave one row, which batch normalisation cannot train on."""
    split = {"client": models, "aggregate": "mean", "server": {"kind": "linear"}}
    rows = {"train_rows": 81, "test_fraction": 0.1, "name": "digits"}
    return tiny(data=rows, partition={"clients": clients, "by": "columns"}, models=split)


@pytest.mark.parametrize("clients", [2, 8])
def test_alike_clients_are_asked_once_whether_they_can_train_on_one_row(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[nn.Module] = []

    def least(module: nn.Module, _shape: tuple[int, ...]) -> int:
        asked.append(module)
        return 1

    monkeypatch.setattr(data, "least_batch", least)
    read_and_check(one_row_left(clients, LINEAR))
    assert len(asked) == 2, "a client and the server"


def test_the_first_of_alike_clients_that_need_two_rows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def least(module: nn.Module, _shape: tuple[int, ...]) -> int:
        return 2 if any(isinstance(each, nn.ReLU) for each in module.modules()) else 1

    monkeypatch.setattr(data, "least_batch", least)
    perceptrons = {"select": [3, 4], "kind": "mlp", "hidden": [5], "embedding": 4}
    with pytest.raises(ScenarioError, match="the model of client 3 cannot train on one row"):
        read_and_check(one_row_left(4, [{"select": "all", **LINEAR}, perceptrons]))
