"""FedVS: exactly what waiting for everybody computes, at the pace of the fastest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from coded_worlds import InTheClear, coded
from thorough import is_thorough
from tiny_worlds import RANDOM_TIMING, data_of, events, learners, metrics, rounds, run, same_weights

from vflsim.errors import ScenarioError
from vflsim.protocols.fedvs import FedVS
from vflsim.scenario import load
from vflsim.scenario.models import Scenario

MANY = 200 if is_thorough() else 30
FOR_MANY = {"stop": {"rounds": MANY}, "evaluate": {"every": f"{MANY} rounds"}, "timing": RANDOM_TIMING}


def quantised_wait(scenario: Scenario, steps: int, client_steps: int) -> dict[str, torch.Tensor]:
    """Waiting for all quantised embeddings on the same segmented batches, in a plain loop: the weights at its end.

    The run that it is compared with ends with its last server step, whose gradients some clients never see.
    """
    server, clients = learners(scenario, "fedvs", 0, data_of(scenario))
    clear = InTheClear(scenario, server.plan)  # type: ignore[attr-defined]
    sequence = scenario.protocols["fedvs"].protocol.batch_plan().batches(data_of(scenario).rows, scenario.training, 0)
    labels, task = data_of(scenario).labels["train"], data_of(scenario).task
    weights = {c: [linear.weight.detach().clone() for linear in learner.model.powers] for c, learner in clients.items()}
    optimizer = torch.optim.SGD(server.model.parameters(), lr=0.1, foreach=False)
    stepping = torch.optim.SGD([w for ws in weights.values() for w in ws], lr=0.2, foreach=False)
    server.model.train()
    for k in range(steps):
        batch = sequence.batch(k)
        stacked = {c: torch.cat([w.T for w in ws]).numpy() for c, ws in weights.items()}
        h = clear.mean(clear.total(batch, stacked, k), len(clients)).requires_grad_()
        loss = task.loss(server.model(h), labels[torch.tensor(batch.ids)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert h.grad is not None
        gradient = h.grad / len(clients)
        if k < client_steps:
            for c, ws in weights.items():
                x = torch.from_numpy(clear.data[c][batch.ids] * 2.0**-server.plan.quantiser.data_bits)  # type: ignore[attr-defined]
                change, width = x.T @ gradient, ws[0].shape[1]
                for power, w in enumerate(ws):
                    w.grad = change[power * width : (power + 1) * width].T.contiguous()
            stepping.step()
    found = {f"client-{c}.powers.{i}.weight": w for c, ws in weights.items() for i, w in enumerate(ws)}
    return found | {f"server.{key}": tensor for key, tensor in server.model.state_dict().items()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("said", [{}, {"K": 1, "T": 2}, {"late": "finished"}], ids=str)
def test_many_rounds_end_with_the_very_weights_of_a_quantised_wait(said: dict[str, Any]) -> None:
    # A client step takes 1 ms and the next round more, so that all but the last round's steps are done at the end.
    scenario = load(coded(arithmetic="decoded", more=FOR_MANY, **said))
    outcome = run(scenario)
    assert {len(used) for used in rounds(outcome)["used"]} == {5}
    assert metrics(outcome)["updates"].iloc[-1] == 7 * (MANY - 1)
    expected = quantised_wait(scenario, MANY, MANY - 1)
    assert outcome.weights.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(tensor, outcome.weights[key]), key


@pytest.mark.slow
@pytest.mark.parametrize("said", [{}, {"prime": "2^61-1"}, {"sharers": 4}], ids=str)
def test_coded_and_decoded_arithmetic_write_identical_results(said: dict[str, Any]) -> None:
    more = {"timing": RANDOM_TIMING, "stop": {"rounds": MANY // 2}, "evaluate": {"every": "5 rounds"}}
    one, other = (run(load(coded(arithmetic=how, more=more, **said))) for how in ("coded", "decoded"))
    assert metrics(one).equals(metrics(other))
    assert rounds(one).equals(rounds(other))
    assert events(one).equals(events(other))
    assert same_weights(one, other)
    assert len({tuple(used) for used in rounds(one)["used"]}) > 5  # all kinds of answers were decoded


def test_every_message_has_its_true_size() -> None:
    outcome = run(load(coded(more={"timing": RANDOM_TIMING, "stop": {"rounds": 3}})))
    header, clients = 60, 7
    kinds = events(outcome)
    kinds = kinds[(kinds["outcome"] == "done") & kinds["kind"].str.startswith("transfer.")]
    sizes = {kind: sorted(set(own["bytes"])) for kind, own in kinds.groupby("kind", observed=True)}
    columns = {2 * n for n in (9, 10)}  # 64 features over 7 clients, and their squares
    height = -(-data_of(load(coded())).rows // 2)
    assert sizes["transfer.data_share"] == sorted(header + 4 * height * c for c in columns)
    assert sizes["transfer.model_share"] == sorted(header + 4 * 5 * c for c in columns)
    assert sizes["transfer.coded_embedding"] == [header + 4 * 10 * 5]
    assert sizes["transfer.gradient"] == [header + 8 * 20 * 5]  # ∂ℓ/∂h of the whole batch, float64 here
    assert (kinds["kind"] == "transfer.data_share").sum() == clients * (clients - 1)


def test_the_code_and_what_it_stores_are_in_the_results() -> None:
    scenario = load(coded(more={"stop": {"rounds": 1}}))
    table = run(scenario).extra["coding"].to_pylist()
    assert len(table) == 1
    said = {"K": 2, "T": 1, "recovery_threshold": 5, "clients": 7, "prime": 2**31 - 1, "weight_bound": 4.0}
    assert said.items() <= table[0].items()
    height = -(-data_of(scenario).rows // 2)
    assert table[0]["storage_bytes"] == height * 128 * 4


def test_the_scales_are_as_large_as_the_field_allows() -> None:
    def bits(**said: Any) -> tuple[int, int, int]:
        scenario = load(coded(**said))
        server, _ = learners(scenario, "fedvs", 0, data_of(scenario))
        plan = server.plan  # type: ignore[attr-defined]
        assert plan.worst <= plan.quantiser.field.largest
        return plan.quantiser.field.p, plan.quantiser.data_bits, plan.quantiser.weight_bits

    small, large = bits(), bits(prime="2^61-1")
    assert sum(large[1:]) > sum(small[1:]) + 25
    assert sum(bits(weight_bound=1.0)[1:]) > sum(small[1:])
    assert bits(prime="auto") == small
    assert bits(prime="auto", weight_bound=400.0) == bits(prime="2^61-1", weight_bound=400.0)
    assert bits(data_bits=3, weight_bits=5)[1:] == (3, 5)


WRONG = {
    "too many segments": (
        {"K": 3, "T": 2},
        {},
        r"K: 3 segments with T = 2 needs R = .* 9 answers, and there are 7 clients",
    ),
    "unequal parts": ({"K": 3}, {}, "K: 3 segments cannot share a batch of 20 rows"),
    "sharers": ({"sharers": 8}, {}, "sharers: 8 of 7 clients\n  allowed: 1 to 7"),
    "aggregate": ({}, {"models__aggregate": "sum"}, "decodes the mean of all embeddings, and the aggregate is sum"),
    "own batches": ({}, {"training__batches": "own"}, "must work on the same batch"),
    "half of the bits": ({"data_bits": 3}, {}, "data_bits and weight_bits go together"),
    "bits and auto": ({"prime": "auto", "data_bits": 3, "weight_bits": 3}, {}, "prime: auto chooses the bits, too"),
    "deadline alone": ({"deadline": "1 s"}, {}, "too_few: wait has no deadline"),
    "no deadline": ({"too_few": "skip"}, {}, "too_few: skip needs a deadline"),
    "another prime": ({"prime": "7"}, {}, "allowed: auto|allowed: 2\\^31-1, 2\\^61-1, auto"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_coded_is_refused_when_the_scenario_is_loaded(case: str) -> None:
    said, more, message = WRONG[case]
    with pytest.raises(ScenarioError, match=message):
        load(coded(more=more, **said))


@pytest.mark.parametrize(("clients", "k", "t"), [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 1, 2)])
def test_too_few_clients_for_any_code_are_told_how_many_are_needed(clients: int, k: int, t: int) -> None:
    """Each of the other messages would ask for a smaller K or T, down to 1, and then again."""
    with pytest.raises(ScenarioError) as caught:
        load(coded(K=k, T=t, more={"partition__clients": clients, "timing": {}}))
    assert f"fedvs needs R = 2(K+T-1) + 1 answers, 3 at least (K = T = 1), and there are {clients}" in str(caught.value)
    assert "allowed: 3 clients or more" in str(caught.value)
    assert "K: " not in str(caught.value)


def test_three_clients_are_enough_for_the_smallest_code() -> None:
    assert load(coded(K=1, T=1, more={"partition__clients": 3, "timing": {}})).clients == 3


def test_a_model_that_is_no_polynomial_is_refused() -> None:
    said = coded()
    said["models"]["client"] = {"kind": "mlp", "hidden": [4], "embedding": 5}
    with pytest.raises(ScenarioError, match="the model of client 1 is mlp\n  allowed: linear and polynomial"):
        load(said)


def test_the_threshold_is_the_papers() -> None:
    assert [FedVS(K=k, T=t).threshold for k, t in ((1, 1), (2, 1), (8, 1), (4, 3))] == [3, 5, 17, 13]


def test_sharing_takes_log_squared_n_over_b_of_an_upload_delay() -> None:
    outcome = run(load(coded(more={"timing": RANDOM_TIMING, "stop": {"rounds": 30}})), timing_only=True)
    done = events(outcome)
    done = done[done["outcome"] == "done"]
    shares = done[done["kind"] == "share"].groupby("party", observed=True)["drawn_s"].mean()
    law = run(
        load(coded(share_delay_factor=1.0, more={"timing": RANDOM_TIMING, "stop": {"rounds": 30}})), timing_only=True
    )
    plain = events(law, "share").groupby("party", observed=True)["drawn_s"].mean()
    ratio = (shares / plain).dropna()
    # |B| = 10, in the last round of an epoch, too, which has 5 places.
    assert ratio.to_numpy() == pytest.approx(np.log2(7) ** 2 / 10)
    none = run(
        load(coded(share_delay_factor=0.0, more={"timing": RANDOM_TIMING, "stop": {"rounds": 5}})), timing_only=True
    )
    assert (events(none, "share")["drawn_s"] == 0).all()
