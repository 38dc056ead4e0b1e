"""Data sets in files that processes map: the same numbers, which nobody can change."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vflsim.learning.data import load
from vflsim.learning.data.loaded_data import SPLITS, LoadedData
from vflsim.learning.data.partition import Partition
from vflsim.learning.data.shelf import SharedData
from vflsim.learning.data.spec import Data
from vflsim.learning.training import Training

TRAINING = Training.model_validate(
    {"batch": 5, "client_optimizer": {"kind": "sgd", "lr": 1}, "server_optimizer": {"kind": "sgd", "lr": 1}}
)


def loaded(said: dict[str, Any], **partition: Any) -> LoadedData:
    return LoadedData.of(load(Data.model_validate(said), Partition.model_validate(partition)), TRAINING)


def tables(folder: Path) -> dict[str, Any]:
    """Files of two parties, of which the second lacks rows, and one of labels; validation rows, and a category."""
    rows = range(40)
    (folder / "a.csv").write_text("id,x,c\n" + "".join(f"{i},{i % 7},{'red' if i % 3 else 'blue'}\n" for i in rows))
    (folder / "b.csv").write_text("id,y,z\n" + "".join(f"{i},{i % 5},{i}.5\n" for i in rows if i % 4))
    (folder / "l.csv").write_text("id,t\n" + "".join(f"{i},{i % 2}.5\n" for i in rows))
    files = {"parties": [str(folder / "a.csv"), str(folder / "b.csv")], "labels": str(folder / "l.csv")}
    how = {"align": "outer", "label": "t", "id": "id", "categorical": ["c"], "task": "regression"}
    return {**files, **how, "validation_fraction": 0.2}


def same(one: LoadedData, other: LoadedData) -> None:
    """The tensors of every party are equal, bit for bit, and all else is."""
    for split in SPLITS:
        assert torch.equal(one.joint[split], other.joint[split])
        assert torch.equal(one.labels[split], other.labels[split])
        assert one.labels[split].dtype == other.labels[split].dtype
    assert len(one.features) == len(other.features)
    for mine, its in zip(one.features, other.features, strict=True):
        assert all(torch.equal(mine[split], its[split]) for split in SPLITS)
    assert (one.active is None) == (other.active is None)
    assert one.active is None or all(torch.equal(one.active[s], (other.active or {})[s]) for s in SPLITS)
    assert (one.present is None) == (other.present is None)
    assert one.present is None or all(torch.equal(one.present[s], (other.present or {})[s]) for s in SPLITS)
    for name in ("name", "columns", "shapes", "outputs", "class_names", "guessed", "server_shape", "facts"):
        assert getattr(one, name) == getattr(other, name)
    assert (one.task.name, one.coded_shapes) == (other.task.name, other.coded_shapes)


@pytest.mark.parametrize("case", ["digits", "images of an active server", "absent rows and categories"])
def test_another_process_maps_the_same_data(case: str, tmp_path: Path) -> None:
    data = {
        "digits": lambda: loaded({"name": "digits", "train_rows": 50}, clients=4),
        "images of an active server": lambda: loaded({"name": "digits"}, clients=3, by="image_rows", active=True),
        "absent rows and categories": lambda: loaded(tables(tmp_path), active=True),
    }[case]()
    shared = SharedData(data)
    same(shared.data, data)
    elsewhere = pickle.loads(pickle.dumps(shared.outline))
    same(elsewhere.mapped(os.dup(shared.descriptor)), data)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in shared.data.joint.values() if tensor.numel())
    assert (data.present is not None) == (case == "absent rows and categories")


def test_nobody_changes_what_others_map() -> None:
    shared = SharedData(loaded({"name": "digits", "train_rows": 50}, clients=4))
    one, other = (shared.outline.mapped(shared.descriptor) for _ in range(2))
    before = other.joint["train"].clone()
    one.joint["train"].fill_(7.0)
    assert torch.equal(other.joint["train"], before)
    with pytest.raises(PermissionError):
        os.pwrite(shared.descriptor, b"7", 0)
    with pytest.raises(PermissionError):
        os.truncate(shared.descriptor, 0)


def test_the_file_has_no_name_and_lives_as_long_as_a_tensor() -> None:
    data = loaded({"name": "digits", "train_rows": 50}, clients=4)
    shared = SharedData(data)
    descriptor, mapped = shared.descriptor, shared.data
    assert os.fstat(descriptor).st_nlink == 0
    del shared
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert np.array_equal(mapped.joint["train"].numpy(), data.joint["train"].numpy())
