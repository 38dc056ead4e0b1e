"""Parties with categories: DeepFM, Wide & Deep, an MLP and a linear model, each with an optimiser of its own."""

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from plain_training import learners
from tiny_worlds import EAGER, data_of, metrics, raw, run, same_weights, scores_apart

from vflsim.errors import DataError, ScenarioError
from vflsim.explaining.explain import noisy_test
from vflsim.learning.batches import BatchSequence
from vflsim.scenario import load
from vflsim.studies.study import checked

CRITEO = Path(os.environ.get("VFLSIM_DATA", "/nowhere")) / "criteo_sample/criteo_sample.txt"
COLOURS, ROUNDS = ["red", "green", "blue", None], 25
CLIENTS = [
    {"select": 1, "kind": "deepfm", "factors": 3, "hidden": [6], "embedding": 4},
    {"select": 2, "kind": "wide_deep", "factors": 3, "hidden": [6], "embedding": 4},
    {"select": 3, "kind": "mlp", "hidden": [6], "embedding": 4},
    {"select": 4, "kind": "linear", "embedding": 4},
]
RULES = [{"kind": "adam", "lr": 0.02}, {"select": "3..4", "kind": "sgd", "lr": 0.1, "momentum": 0.5}]


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    """Clicks that follow from a colour and a number, which different parties hold."""
    rows = pd.DataFrame({"row": range(120)})
    for party in range(4):
        rows[f"number{party}"] = (rows["row"] * (7 + 4 * party)) % 23
        rows[f"colour{party}"] = [COLOURS[row * (3 + party) % 13 % 4] for row in range(120)]
    rows["y"] = ((rows["number0"] > 11) ^ (rows["colour1"] == "red")).astype(int)
    rows.drop(columns="row").to_csv(tmp_path / "clicks.csv", index=False)
    categorical = [f"colour{party}" for party in range(4)]
    return {"file": str(tmp_path / "clicks.csv"), "label": "y", "categorical": categorical}


def said(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    more = {"models__client": CLIENTS, "models__aggregate": "concat", "training__client_optimizer": RULES}
    return raw(data=data, **{**more, "stop": {"updates": 4 * ROUNDS}, "evaluate": {"every": "5 rounds"}, **changes})


def test_training_equals_one_plain_loop(table: dict[str, Any]) -> None:
    scenario = load(said(table))
    data, outcome = data_of(scenario), run(scenario)
    server, clients = learners(scenario, "synchronous", 0, data)
    modules = {m: learner.model for m, learner in clients.items()}
    optimizers: list[torch.optim.Optimizer] = [torch.optim.SGD(server.model.parameters(), lr=0.1)]
    optimizers += [torch.optim.Adam(modules[m].parameters(), lr=0.02) for m in (1, 2)]
    optimizers += [torch.optim.SGD(modules[m].parameters(), lr=0.1, momentum=0.5) for m in (3, 4)]
    batches = BatchSequence(data.rows, scenario.training, 0, -1)
    for k in range(ROUNDS):
        ids = torch.tensor(batches.batch(k).ids)
        h = torch.cat([modules[m](data.features[m - 1]["train"][ids]) for m in modules], dim=1)
        loss = F.binary_cross_entropy_with_logits(server.model(h), data.labels["train"][ids])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    for m, module in modules.items():
        for name, tensor in module.state_dict().items():
            assert torch.allclose(tensor, outcome.weights[f"client-{m}.{name}"], rtol=0, atol=1e-12), (m, name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["easter", "agg_vfl", "local", "pyvertical"])
def test_every_party_of_easter_has_vectors_for_its_categories(kind: str, table: dict[str, Any]) -> None:
    """Its embedding nets are those of a split network on the same columns, in size and in initial weights."""
    active = {key: value for key, value in CLIENTS[0].items() if key != "select"}
    parties = {"partition": {"clients": 3, "active": True}, "models__active": active, "models__client": CLIENTS[:3]}
    more: dict[str, Any] = {
        **parties,
        "training__client_optimizer": RULES[0],
        "stop": {"rounds": 3},
        "evaluate": {"every": "3 rounds"},
    }
    entry = {"kind": kind, "models": {"aggregate": "concat" if kind == "pyvertical" else "mean"}}
    scenario = load(said(table, **more, protocols={"split": {"kind": "synchronous"}, "it": entry}))
    split, own = (learners(scenario, name, 0, data_of(scenario)) for name in ("split", "it"))
    parties_of = {0: (split[0], own[0])} | {m: (split[1][m], learner) for m, learner in own[1].items()}
    for one, other in parties_of.values():
        expected, found = one.embedding.module.state_dict(), other.embedding.module.state_dict()
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert run(scenario, "it").error is None


def test_clients_with_categories_run_one_by_one(table: dict[str, Any]) -> None:
    models = [{"select": "all", "kind": "linear", "embedding": 4}, {**CLIENTS[2], "select": "3..4"}]
    scenario = load(said(table, models__client=models, training__client_optimizer=RULES[0]))
    assert same_weights(run(scenario), run(scenario, execution=EAGER))


def test_coded_clients_refuse_categories(table: dict[str, Any]) -> None:
    world = said(table, models__client={"kind": "linear", "embedding": 4}, models__aggregate="mean")
    world["protocols"] = {"it": {"kind": "fedvs", "K": 1}}
    with pytest.raises(ScenarioError, match="data without categorical columns"):
        checked(load(world), timing_only=False)


def test_one_hot_columns_train_like_the_codes_that_models_make_them_of(table: dict[str, Any]) -> None:
    models = {"kind": "mlp", "hidden": [6], "embedding": 4}
    world = said(table, models__client=models, training__client_optimizer=RULES[0])
    codes = run(load(world))
    world["data"]["encoding"] = "one_hot"
    columns = run(load(world))
    assert codes.info.one_by_one
    assert columns.info.one_by_one == ()  # and so batched
    assert scores_apart(codes, columns) < 1e-9


def test_coded_clients_take_one_hot_columns(table: dict[str, Any]) -> None:
    world = said({**table, "encoding": "one_hot"}, models__client={"kind": "linear", "embedding": 4})
    world["models"]["aggregate"], world["training"]["client_optimizer"] = "mean", {"kind": "sgd", "lr": 0.5}
    world["protocols"] = {"it": {"kind": "fedvs", "K": 1}}
    scores = metrics(run(load(world)))
    assert scores["test_loss"].iloc[-1] < scores["test_loss"].iloc[0]


def test_explaining_puts_no_noise_on_categories(table: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="noise is for numbers"):
        noisy_test(data_of(load(said(table))), 1.0, 0)


@pytest.mark.skipif(not CRITEO.is_file(), reason="set VFLSIM_DATA")
def test_criteos_sample_can_be_learnt() -> None:
    """160 training rows with almost as many categories a column are learnt by heart; 40 test rows are scored."""
    scenario = load(said({"name": "criteo_sample"}, stop={"rounds": 100}, evaluate={"every": "20 rounds"}))
    table = metrics(run(scenario))
    assert table["train_loss"].iloc[-1] < 0.2 < 0.5 < table["train_loss"].iloc[1]
    assert table["test_auc"].between(0.4, 0.9).all()
