"""Checks against the data ask alike parties once: their cost does not grow with the number of clients."""

from typing import Any

import pytest
from tiny_worlds import tiny
from torch import nn

from vflsim.errors import ScenarioError
from vflsim.scenario.models import Scenario
from vflsim.studies.checks import data
from vflsim.studies.checks.data import read_and_check

CNN = {"kind": "cnn", "channels": [2], "embedding": 4}
RESNET = {"kind": "resnet18", "width": 2, "embedding": 4}


def one_row_left(clients: int, models: Any) -> Scenario:
    """Batches of 20 of 81 rows leave one row, which batch normalisation cannot train on."""
    split = {"client": models, "aggregate": "mean", "server": {"kind": "layers", "layers": [4]}}
    rows = {"train_rows": 81, "test_fraction": 0.1, "name": "digits"}
    return tiny(data=rows, partition={"clients": clients, "by": "image_rows"}, models=split)


@pytest.mark.parametrize("clients", [2, 8])
def test_alike_clients_are_asked_once_whether_they_can_train_on_one_row(
    clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[nn.Module] = []

    def least(module: nn.Module, _shape: tuple[int, ...]) -> int:
        asked.append(module)
        return 1

    monkeypatch.setattr(data, "least_batch", least)
    read_and_check(one_row_left(clients, CNN))
    assert len(asked) == 2, "a client and the server"


def test_chains_of_linear_layers_are_known_to_train_on_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "least_batch", lambda module, shape: pytest.fail(f"{module} is made and asked"))
    scenario = one_row_left(2, {"kind": "mlp", "hidden": [5], "embedding": 4})
    read_and_check(scenario.model_copy(update={"models": tiny().models}))


def test_the_first_of_alike_clients_that_need_two_rows_is_named() -> None:
    with pytest.raises(ScenarioError, match="the model of client 3 cannot train on one row"):
        read_and_check(one_row_left(4, [{"select": "all", **CNN}, {"select": [3, 4], **RESNET}]))


def world(name: str, key: str | None = None, **changes: Any) -> Any:
    codec: dict[str, Any] = {"kind": "module", "path": f"own_codecs:{name}"}
    if key is not None:
        codec = {"kind": "by_direction", key: codec}
    return tiny("synchronous", codec=codec, **changes)


@pytest.mark.parametrize("key", [None, "up", "down"])
def test_a_codec_that_is_wrong_for_the_width_of_embeddings_is_refused(key: str | None) -> None:
    wide = {"models__client": {"kind": "linear", "embedding": 36}}
    with pytest.raises(ScenarioError, match=r"(?s)codec.*OneShort.payload_bytes says \d+ bytes where pack writes \d+"):
        read_and_check(world("OneShort", key, **wide))
    read_and_check(world("OneShort", key))  # no tensor has this width


def test_a_codec_that_cannot_encode_the_last_batch_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"(?s)codec.*SevenRows fails: .*seven rows do not fit.*own_codecs.py"):
        read_and_check(world("SevenRows", training__batch=83))  # 90 rows: 83 and 7
    read_and_check(world("SevenRows", training__batch=30))


def test_honest_codecs_pass_whatever_is_sent() -> None:
    read_and_check(world("Honest", models__client={"kind": "linear", "embedding": 20_000}))
