"""``partition.active``: refused where a protocol would ignore the server's features."""

from __future__ import annotations

import pytest
from tiny_worlds import data_of, raw

from vflsim.errors import ScenarioError
from vflsim.protocols.base import ROUNDS, replace
from vflsim.protocols.synchronous import Synchronous
from vflsim.scenario import load
from vflsim.scenario.resolve import setting

OWN = {"kind": "linear", "embedding": 6}


def test_a_protocol_that_ignores_the_servers_features_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Synchronous, "traits", replace(ROUNDS, active_features=False))
    with pytest.raises(
        ScenarioError,
        match=r"partition\.active: protocol 'synchronous' (.|\n)*remedy: give 'synchronous' `models: {active: null}`",
    ):
        load(raw(partition={"clients": 3, "active": True}, models__active=OWN))
    monkeypatch.setattr(Synchronous, "traits", ROUNDS)
    scenario = load(raw(partition={"clients": 3, "active": True}, models__active=OWN))
    assert scenario.clients == 3


def test_an_active_server_needs_a_model_for_its_features_and_only_then_has_one() -> None:
    with pytest.raises(ScenarioError, match=r"models\.active: the server holds features(.|\n)*allowed: a client model"):
        load(raw(partition={"clients": 3, "active": True}))
    with pytest.raises(ScenarioError, match=r"models\.active: the server has a model(.|\n)*remedy: set partition"):
        load(raw(models__active=OWN))


def test_embeddings_that_cannot_be_joined_are_named_by_party() -> None:
    with pytest.raises(ScenarioError, match=r"not 5 \(the server\), 6 \(client 1\), 6 \(client 2\)"):
        load(raw(partition={"clients": 2, "active": True}, models__active={**OWN, "embedding": 5}))
    weighted = {"kind": "weighted", "weights": [1, 2]}
    with pytest.raises(ScenarioError, match=r"3 parties but 2 weights(.|\n)*one per party, the server first"):
        load(raw(partition={"clients": 2, "active": True}, models__active=OWN, models__aggregate=weighted))


def test_clients_have_prediction_nets_of_their_own_where_a_protocol_uses_them() -> None:
    mlp, linear = {"kind": "mlp", "hidden": [4]}, {"kind": "linear"}
    said = raw("easter", models__predictor=[{"select": "1..2", **mlp}, {"select": "N", **linear, "bias": False}])
    scenario = load(said)
    made = setting(scenario, "easter", data_of(scenario))
    assert [made.predictor_of(m).model_dump(exclude_defaults=True) for m in range(5)] == [
        {"hidden": (8,)},
        {"hidden": (4,)},
        {"hidden": (4,)},
        {"hidden": (8,)},
        {"bias": False},
    ]
    said["protocols"]["easter"]["models"] = {"predictor": linear}
    scenario = load(said)
    nets = setting(scenario, "easter", data_of(scenario)).predictors
    assert {net.kind for net in nets} == {"linear"}
    with pytest.raises(ScenarioError, match=r"'synchronous' of kind synchronous has one model(.|\n)*of kind easter"):
        load(raw(models__predictor=linear))


def test_a_prediction_net_that_does_not_fit_the_embedding_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"models\.predictor: client 3: a vgg server of side 4"):
        load(raw("easter", models__predictor={"select": "3", "kind": "vgg", "side": 4, "channels": [2]}))
    with pytest.raises(ScenarioError, match=r"models\.server: a logistic server .* must be 10 wide, not 6"):
        load(raw("easter", models__server={"kind": "logistic"}, models__predictor={"kind": "linear"}))
