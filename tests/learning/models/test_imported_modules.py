"""Clients whose module is the user's own, named by import path."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from vflsim.learning.models.build import seeded
from vflsim.learning.models.client import ModuleClient

SOURCE = """
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, feature_shape, embedding, scale=1.0):
        super().__init__()
        (columns,) = feature_shape
        self.scale = scale
        self.map = nn.Linear(columns, embedding)

    def forward(self, x):
        return self.scale * self.map(x)


class Holder:
    class Inner(Encoder):
        pass


def encoder(feature_shape, embedding):
    return nn.Linear(feature_shape[0], embedding)


class Greedy(nn.Module):
    def __init__(self, **anything):
        super().__init__()
        self.given = sorted(anything)

    def forward(self, x):
        return x


class Wide(Encoder):
    def forward(self, x):
        return torch.cat([super().forward(x)] * 2, dim=1)


class Pair(Encoder):
    def forward(self, x):
        return super().forward(x), x


class Integer(Encoder):
    def forward(self, x):
        return super().forward(x).long()


class Broken(Encoder):
    def forward(self, x):
        raise RuntimeError("no idea")


class Dropping(Encoder):
    def forward(self, x):
        return torch.dropout(super().forward(x), 0.5, self.training)


class Frozen(Encoder):
    def __init__(self, **options):
        super().__init__((6,), 4)
        self.requires_grad_(False)


class NotAModule:
    pass


def nothing():
    return None


number = 3
"""


@pytest.fixture(autouse=True)
def user_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    name = "vflsim_test_user_models"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    (tmp_path / "vflsim_test_bad_syntax.py").write_text("def (:\n")
    (tmp_path / "vflsim_test_needs_more.py").write_text("import vflsim_test_absent_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import sys

    yield
    sys.modules.pop(name, None)


def client(name: str, **arguments: Any) -> ModuleClient:
    return ModuleClient(embedding=4, path=f"vflsim_test_user_models:{name}", arguments=arguments)


@pytest.mark.parametrize("name", ["Encoder", "Holder.Inner", "encoder"])
def test_classes_and_functions_of_the_users_become_clients(name: str) -> None:
    model = client(name)
    model.check((6,))
    assert model.build((6,))(torch.randn(3, 6)).shape == (3, 4)


def test_arguments_reach_the_class() -> None:
    one, two = (seeded(lambda s=s: client("Encoder", scale=s).build((6,)), 5, torch.float32) for s in (1.0, 2.0))
    x = torch.randn(3, 6)
    torch.testing.assert_close(two(x), 2 * one(x))


def test_a_stock_module_gets_only_the_arguments_that_are_given() -> None:
    model = ModuleClient(embedding=4, path="torch.nn:Linear", arguments={"in_features": 6, "out_features": 4})
    model.check((6,))
    assert client("Greedy").build((6,)).given == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("vflsim_test_no_such_module:Encoder", r"does not import: no module named .*PYTHONPATH"),
        ("vflsim_test_needs_more:Encoder", r"no module named vflsim_test_absent_dependency"),
        ("vflsim_test_bad_syntax:Encoder", r"does not import: SyntaxError"),
        ("vflsim_test_user_models:Encodr", r"Encodr does not exist"),
        ("vflsim_test_user_models:number", r"is a value of type int; allowed: a class"),
        ("vflsim_test_user_models:NotAModule", r"not a torch\.nn\.Module"),
        ("vflsim_test_user_models:nothing", r"made a value of type NoneType; allowed: a torch\.nn\.Module"),
        ("torch.nn:Linear", r"could not be built with no arguments: TypeError"),
    ],
)
def test_a_path_that_gives_no_module_is_refused(path: str, message: str) -> None:
    model = ModuleClient(embedding=4, path=path)
    with pytest.raises(ValueError, match=message):
        model.check((6,))
    with pytest.raises(ValueError, match=message):
        model.build((6,))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Wide", r"shape \(2, 8\) for zeros of shape \(2, 6\); allowed: floating point of shape \(2, 4\)"),
        ("Integer", r"returned torch\.int64"),
        ("Pair", r"returned a value of type tuple .*allowed: a tensor of shape \(2, 4\)"),
        ("Broken", r"failed on zeros of shape \(2, 6\): RuntimeError: no idea"),
        ("Frozen", r"has no weights to train"),
    ],
)
def test_a_module_with_a_wrong_output_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        client(name).check((6,))


def test_arguments_that_the_class_does_not_take_are_named() -> None:
    offered = "allowed: parameters named feature_shape, embedding, cardinalities, and those in `arguments`"
    message = f"could not be built with depth, feature_shape, embedding: TypeError.*depth.*; {offered}"
    with pytest.raises(ValueError, match=message):
        client("Encoder", depth=3).check((6,))


def test_parsing_a_path_does_not_import_it() -> None:
    import sys

    client("Encoder")
    assert "vflsim_test_user_models" not in sys.modules


def test_checking_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    client("Encoder").check((6,))
    client("Dropping").check((6,))
    assert torch.equal(before, torch.get_rng_state())
