"""Prepared data sets that scenarios have in common: read once, and never taken for others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vflsim.learning.data import shelf as module
from vflsim.learning.data.partition import Partition
from vflsim.learning.data.shelf import Shelf
from vflsim.learning.data.spec import Data
from vflsim.learning.training import Training

OPTIMIZER = {"kind": "sgd", "lr": 1}
TRAINING = {"batch": 5, "client_optimizer": OPTIMIZER, "server_optimizer": OPTIMIZER}
NOISE = {"select": "1..half", "sd": 1}


def asked(
    data: dict[str, Any], clients: int = 4, dtype: str = "float32", **symbols: float
) -> tuple[Data, Partition, Training, dict[str, float]]:
    training = Training.model_validate({**TRAINING, "dtype": dtype})
    return Data.model_validate(data), Partition(clients=clients), training, symbols


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been loaded, by the key of its split."""
    found: list[str] = []
    real = module.load

    def load(data: Data, *given: Any, **more: Any) -> Any:
        found.append(data.split_seed)
        return real(data, *given, **more)

    monkeypatch.setattr(module, "load", load)
    return found


def take(shelf: Shelf, data: dict[str, Any], **more: Any) -> Any:
    what = asked(data, **more)
    return shelf.of(shelf.key(*what), *what)


def test_equal_data_are_read_once_and_others_are_others(reads: list[int]) -> None:
    shelf, digits = Shelf(), {"name": "digits", "train_rows": 50}
    first = take(shelf, digits, pause=1)
    assert take(shelf, dict(digits), pause=2) is first  # no formula in the data asks for the constant
    others = [
        take(shelf, {**digits, "split_seed": 1}),
        take(shelf, digits, clients=3),
        take(shelf, digits, dtype="float64"),
        take(shelf, {**digits, "noise": NOISE}, half=1),
        take(shelf, {**digits, "noise": NOISE}, half=2),
    ]
    assert len({id(each) for each in [first, *others]}) == len(reads) == 6
    assert not np.array_equal(others[3].joint["train"], others[4].joint["train"])


def test_a_file_that_has_changed_is_read_again(tmp_path: Path, reads: list[int]) -> None:
    shelf, file = Shelf(), tmp_path / "d.npz"
    said = {"file": str(file), "label": "y"}
    for scale in (1, 2):
        np.savez(file, x=scale * np.arange(120.0).reshape(20, 6), y=np.arange(20) % 2)
        os.utime(file, ns=(scale, scale))
        for _ in range(2):
            take(shelf, {**said, "scale": "none"})
    assert len(reads) == 2
    assert take(shelf, {**said, "scale": "none"}).joint["train"].max() > 119


def test_the_latest_data_stay_and_others_go_when_there_is_no_room(
    reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "machine_memory", lambda: 1.0)
    shelf, digits = Shelf(), {"name": "digits", "train_rows": 50}
    for seed in (0, 1, 2, 1, 2, 0):
        take(shelf, {**digits, "split_seed": seed})
    assert reads == [0, 1, 2, 0]


def test_what_is_shared_is_what_is_kept(reads: list[int]) -> None:
    shelf, what = Shelf(), asked({"name": "digits", "train_rows": 50})
    key = shelf.key(*what)
    before = shelf.of(key, *what)
    shared = shelf.shared(key, *what)
    assert shelf.shared(key, *what) is shared
    assert shelf.of(key, *what) is shared.data is not before
    assert np.array_equal(shared.data.joint["test"], before.joint["test"])
    assert reads == [0]
