"""Parties that lack rows: an absent row's embedding is missing under the aggregate's rule, under every protocol."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kept_runs import assert_interruptions_change_no_byte
from party_files import absent_rows, party_files
from plain_training import learners
from protocols_by_kind import KINDS, SOME
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, metrics, run, same_times, scores_apart
from torch import Tensor

from vflsim.errors import ScenarioError
from vflsim.learning.batches import BatchSequence
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.protocols import PROTOCOLS
from vflsim.scenario import load
from vflsim.scenario.resolve import setting
from vflsim.studies.study import checked

ABLE = {protocol.model_fields["kind"].default for protocol in PROTOCOLS if not protocol.traits.refuses_absent_rows}
TAKING = {name: said for name, said in KINDS.items() if said["kind"] in ABLE and "blinding" not in said}
AGGREGATES = ["mean", "sum", "max", "concat", "weighted", "learned_mean"]
ROUNDS = 20


def test_some_protocols_can_and_others_say_why_not() -> None:
    assert {"synchronous", "ignore", "t_synchronous", "asynchronous", "centralised", "fedbcd", "c_vfl"} <= ABLE
    assert {"fedvs", "vimadmm", "easter"}.isdisjoint(ABLE)


def joined(kind: str, data: LoadedData, split: str, rows: Tensor, modules: Any, mixing: Any) -> Tensor:
    """Join the embeddings of rows, one by one, from the definitions: only those that hold a row take part in it."""
    held, sizes = data.present[split], [len(column) for column in (range(*c.indices(99)) for c in data.columns)]
    result = []
    for row in rows.tolist():
        hs = {
            m: module(data.features[m - 1][split][row : row + 1]) for m, module in modules.items() if held[row, m - 1]
        }
        weights = {"mean": dict.fromkeys(hs, 1.0), "weighted": {m: float(sizes[m - 1]) for m in hs}}.get(kind)
        if weights is not None:
            result.append(sum(weights[m] * h for m, h in hs.items()) / sum(weights.values()))
        elif kind == "max":
            result.append(torch.stack([*hs.values()]).amax(0))
        elif kind == "concat":
            result.append(torch.cat([hs.get(m, torch.zeros(1, 5, dtype=torch.float64)) for m in modules], dim=1))
        else:
            result.append(sum((mixing.weights[m - 1] if kind == "learned_mean" else 1.0) * h for m, h in hs.items()))
    return torch.cat(result)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_training_and_evaluation_equal_one_plain_loop_over_rows(aggregate: str, tmp_path: Path) -> None:
    scenario = load(absent_rows(tmp_path, models__aggregate=aggregate, stop={"updates": 3 * ROUNDS}))
    data, outcome = data_of(scenario), run(scenario)
    assert data.present is not None
    assert not data.present["train"].all()
    server, clients = learners(scenario, "synchronous", 0, data)
    modules = {m: learner.model for m, learner in clients.items()}
    mixing = None if server.mixing is None else server.mixing.module
    own = [*server.top.module.parameters(), *([] if mixing is None else mixing.parameters())]
    rules = [torch.optim.SGD(own, lr=0.1), *(torch.optim.SGD(each.parameters(), lr=0.2) for each in modules.values())]
    batches = BatchSequence(data.rows, scenario.training, 0, -1)
    for k in range(ROUNDS):
        ids = torch.tensor(batches.batch(k).ids)
        prediction = server.top.module(joined(aggregate, data, "train", ids, modules, mixing))
        loss = F.binary_cross_entropy_with_logits(prediction, data.labels["train"][ids])
        for rule in rules:
            rule.zero_grad()
        loss.backward()
        for rule in rules:
            rule.step()
    for m, module in modules.items():
        for name, tensor in module.state_dict().items():
            assert torch.allclose(tensor, outcome.weights[f"client-{m}.{name}"], rtol=0, atol=1e-12), (m, name)
    every = torch.arange(len(data.labels["test"]))
    with torch.no_grad():
        prediction = server.top.module(joined(aggregate, data, "test", every, modules, mixing))
        loss = F.binary_cross_entropy_with_logits(prediction, data.labels["test"])
    assert metrics(outcome)["test_loss"].iloc[-1] == pytest.approx(float(loss), abs=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name in TAKING if name in SOME])
def test_what_is_computed_together_is_what_is_computed_one_by_one(name: str, tmp_path: Path) -> None:
    aggregate = AGGREGATES[[*TAKING].index(name) % len(AGGREGATES)]
    said = {"timing": RANDOM_TIMING, "stop": {"updates": 36}, "evaluate": {"every": "6 rounds"}}
    scenario = load(absent_rows(tmp_path, {"it": TAKING[name]}, models__aggregate=aggregate, **said))
    one, other = run(scenario), run(scenario, execution=EAGER)
    assert same_times(one, other)
    assert apart(one, other) < 1e-12
    assert scores_apart(one, other) < 1e-12
    losses = metrics(one)["test_loss"]
    assert losses.iloc[-1] < losses.iloc[0]


def test_a_codec_meets_zeros_in_absent_rows_batched_or_not(tmp_path: Path) -> None:
    """Embeddings of rows that are not there would take places of top-k, and move the others' values."""
    codec = {"kind": "top_k", "fraction": 0.5, "per": "tensor"}
    scenario = load(absent_rows(tmp_path, codec=codec, stop={"updates": 36}))
    assert apart(run(scenario), run(scenario, execution=EAGER)) < 1e-12


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["synchronous", "ignore-exclude", "centralised"])
def test_both_worlds_train_alike(name: str, tmp_path: Path) -> None:
    scenario = load(absent_rows(tmp_path, {"it": TAKING[name]}))
    assert apart(run(scenario, execution=EAGER), run(scenario, kind="real")) == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["synchronous", "t-synchronous-bounded", "ef_vfl-private"])
def test_an_interrupted_run_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    scenario = load(absent_rows(tmp_path, {"it": TAKING[name]}, timing=RANDOM_TIMING, stop={"updates": 36}))
    assert_interruptions_change_no_byte(scenario, tmp_path)


def test_absent_rows_change_no_time_and_no_byte(tmp_path: Path) -> None:
    """Messages have the size of the batch: an absent row travels as zeros, and its FLOPs count."""
    some, said = absent_rows(tmp_path / "some"), {"timing": RANDOM_TIMING}
    scenario = load({**some, **said})
    whole = party_files(tmp_path / "whole", lacking=0.0)
    rows = data_of(scenario).rows
    full = load({**some, **said, "data": {**whole, "align": "inner", "train_rows": rows}})
    assert data_of(full).present is None
    assert same_times(run(scenario), run(full))


def test_an_active_servers_rows_may_be_absent_too(tmp_path: Path) -> None:
    active = {"partition__active": True, "models__active": {"kind": "linear", "embedding": 5}}
    scenario = load(absent_rows(tmp_path, **active, stop={"rounds": 40}))
    resolved = setting(scenario, "synchronous", data_of(scenario))
    assert {len(resolved.clients), resolved.present["train"].shape[1] - 1} == {2}
    assert not resolved.present["train"][:, 0].all()
    outcome = run(scenario)
    assert apart(outcome, run(scenario, execution=EAGER)) < 1e-12
    assert metrics(outcome)["test_loss"].iloc[-1] < metrics(outcome)["test_loss"].iloc[0]


@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        ({"kind": "fedvs", "K": 1}, {}, "kind fedvs cannot do without: a coded sum is over the embeddings of all"),
        (KINDS["vimadmm"], {}, "kind vimadmm cannot do without: each client's head"),
        (KINDS["agg_vfl"], {}, "kind agg_vfl cannot do without: every party predicts every row"),
        (KINDS["synchronous-blinded"], {}, "the masks of 'it' cancel in the sum over all clients alone"),
        (
            {"kind": "synchronous"},
            {"models__client": {"kind": "module", "path": "normed_module:Normed", "embedding": 5}},
            "in the model of client-1 a row changes the embeddings of others",
        ),
    ],
)
def test_who_needs_every_row_refuses_before_anything_runs(
    protocol: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    scenario = load(absent_rows(tmp_path, {"it": protocol}, **changes))
    with pytest.raises(ScenarioError, match=message) as caught:
        checked(scenario, timing_only=False)
    assert "align" in str(caught.value)
