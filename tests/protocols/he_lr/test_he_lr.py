"""Encrypted logistic regression against plain NumPy; its bytes and times against the algorithms' counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from protocols_by_kind import KINDS
from tiny_worlds import data_of, events, learners, metrics, raw, rounds, run, tiny

from vflsim.analysis.findings import ClosedForm
from vflsim.codecs.encryption import TIMES, opened
from vflsim.errors import ScenarioError
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.protocols.he_lr.learning import MASK
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.run import Outcome
from vflsim.studies.study import checked

SHARES: dict[str, Any] = {"form": "sshe", "host": 2}
STEPS = 200


def regression(data: str = "digits", active: bool = True, stop: Any = None, **keys: Any) -> Scenario:
    said: dict[str, Any] = {"name": data, "train_rows": 90, "test_fraction": 0.1, "scale": "standard"}
    changes: dict[str, Any] = {"partition__active": True, "models__active": {"kind": "linear", "embedding": 6}}
    entry = {"it": {"kind": "he_lr", "learning_rate": 0.05, **keys}}
    stop = stop or {"rounds": 3}
    return tiny(entry, data=said, stop=stop, record="events", **(changes if active else {}))


def trained(clients: int, **keys: Any) -> tuple[Scenario, Outcome]:
    """A run that ends with the last client's step, not before it."""
    scenario = regression(stop={"updates": clients * STEPS}, **keys)
    return scenario, run(scenario, "it")


# --- the same weights by plain NumPy ----------------------------------------------------------------------------------


def replayed(scenario: Scenario, bits: int | None, ridge: float = 0.0) -> dict[str, Any]:
    """Logistic regression by its Taylor gradient on all features in one place, scores rounded party by party."""

    def rounded(x: Any) -> Any:
        return x if bits is None else np.rint(x * 2.0**bits) / 2.0**bits

    data = data_of(scenario, "it")
    members = scenario.protocols["it"].protocol.participants(scenario.clients, scenario.symbols)
    tables = {f"client-{m}": data.features[m - 1]["train"] for m in members}
    y = data.labels["train"].numpy()
    y = np.eye(data.outputs)[y] if data.outputs > 1 else y.reshape(-1, 1)
    ones = np.ones((len(y), 1))
    x = {name: rounded(table.reshape(len(y), -1).double().numpy()) for name, table in tables.items()}
    own = [] if data.active is None else [rounded(data.active["train"].reshape(len(y), -1).double().numpy())]
    x["server"] = np.concatenate([*own, ones], 1)
    w = {name: np.zeros((table.shape[1], data.outputs)) for name, table in x.items()}
    batches = BatchSequence(data.rows, scenario.training, 0, -1)
    for k in range(STEPS):
        ids = batches.batch(k).ids
        server = rounded(x["server"][ids] @ w["server"] / 4 + 0.5 - y[ids])
        e = server + sum(rounded(x[name][ids] @ w[name] / 4) for name in tables)
        w = {name: w[name] - 0.05 * (x[name][ids].T @ e / len(ids) + ridge * w[name]) for name in x}
    return w


def off(outcome: Outcome, expected: dict[str, Any]) -> float:
    assert {f"{name}.w" for name in expected} == set(outcome.weights)
    return max(float(np.abs(outcome.weights[f"{name}.w"].numpy() - w).max()) for name, w in expected.items())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("data", "active"), [("digits", True), ("digits", False), ("breast_cancer", True)])
def test_weights_with_a_coordinator_are_those_of_plain_numpy(data: str, active: bool) -> None:
    scenario, outcome = trained(4, data=data, active=active, ridge=0.01, fraction_bits=20)
    expected = replayed(scenario, 20, 0.01)
    assert off(outcome, expected) <= 1e-12
    assert max(np.abs(w).max() for w in expected.values()) > 0.1
    exact = replayed(scenario, None, 0.01)
    assert 1e-9 < off(outcome, exact) < 200 * 2.0**-20


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("data", "active"), [("digits", True), ("breast_cancer", False)])
def test_weights_on_shares_are_those_of_plain_numpy(data: str, active: bool) -> None:
    """Numbers are rounded to 2^-40: 1e-12, a few times a step."""
    scenario, outcome = trained(1, data=data, active=active, ridge=0.01, fraction_bits=40, **SHARES)
    assert off(outcome, replayed(scenario, None, 0.01)) <= 1e-10
    coarse = trained(1, data=data, active=active, ridge=0.01, fraction_bits=20, **SHARES)[1]
    assert 1e-9 < off(coarse, replayed(scenario, None, 0.01)) < 200 * 2.0**-20


def test_scores_add_up_to_the_prediction_and_its_loss() -> None:
    scenario, outcome = trained(4)
    data, last = data_of(scenario, "it"), metrics(outcome).iloc[-1]
    z = sum(
        data.features[m - 1]["test"].reshape(len(data.labels["test"]), -1).double() @ outcome.weights[f"client-{m}.w"]
        for m in (1, 2, 3, 4)
    )
    assert data.active is not None
    own = data.active["test"].reshape(len(z), -1).double()
    z += torch.cat([own, torch.ones(len(z), 1)], 1) @ outcome.weights["server.w"]
    expected = data.task.scores(z, data.labels["test"])
    assert last["test_loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert last["test_accuracy"] == expected["accuracy"] > 0.7


@pytest.mark.parametrize("every", [{"every": "1 rounds"}, {"every": "70 ms"}])
def test_shares_are_opened_after_equally_many_steps(every: dict[str, str]) -> None:
    """Whenever it is evaluated, the loss of a model that trains does not jump to that of masks."""
    said = raw({"it": {"kind": "he_lr", "learning_rate": 0.05, **SHARES}}, evaluate=every, stop={"rounds": 12})
    losses = metrics(run(load(said), "it"))["test_loss"]
    assert len(losses) > 10
    assert losses.diff().max() < 0.05


def test_one_share_says_nothing_and_both_add_up() -> None:
    scenario = regression(**SHARES)
    server, clients = learners(scenario, "it", 0, data_of(scenario, "it"))
    mine, theirs = server.remembered("share"), clients[2].remembered("other")
    assert (mine + theirs == 0).all()
    assert MASK / 3 < mine.abs().mean() < MASK


# --- bytes and seconds ------------------------------------------------------------------------------------------------


def sizes(scenario: Scenario) -> tuple[int, int, list[int]]:
    """The outputs, the server's columns, and those of the clients."""
    data = data_of(scenario, "it")
    server = 1 + (0 if data.active is None else data.active["train"][0].numel())
    return data.outputs, server, [each["train"][0].numel() for each in data.features]


def lasting(outcome: Outcome, kind: str, party: str) -> list[float]:
    these = events(outcome, f"compute.{kind}", party)
    return (these["end_s"] - these["start_s"]).round(9).drop_duplicates().tolist()


def test_bytes_and_seconds_with_a_coordinator_follow_from_the_counts() -> None:
    """90 rows make batches of 20, 20, 20, 20 and 10; the first three are counted."""
    scenario = regression()
    c, own, wide = sizes(scenario)
    outcome, times = run(scenario, "it"), TIMES["paillier", 2048]
    cipher, table = 512, metrics(outcome).iloc[-1]
    assert table["bytes_up"] == 3 * sum(2 * 60 + (20 + d) * c * cipher for d in wide)
    # the last gradients are on their way when the third step ends the run
    assert (
        0
        < 3 * sum(60 + 20 * c * cipher + 60 + d * c * 8 for d in wide) - table["bytes_down"]
        <= sum(60 + d * c * 8 for d in wide)
    )
    assert lasting(outcome, "encrypt_scores", "client-1") == [pytest.approx(20 * c * times.encrypt)]
    assert lasting(outcome, "residuals", "server") == [pytest.approx(20 * c * 4 * times.add)]
    product = 20 * wide[0] * c * (times.multiply + times.add) + wide[0] * c * times.encrypt
    assert lasting(outcome, "masked_gradient", "client-1") == [pytest.approx(product)]
    product = 20 * c * ((own - 1) * times.multiply + own * times.add) + own * c * times.encrypt
    assert lasting(outcome, "masked_gradient", "server") == [pytest.approx(product)]
    assert lasting(outcome, "decrypt", "server") == [pytest.approx((own + sum(wide)) * c * times.decrypt)]


def test_a_tiny_world_takes_exactly_the_times_of_the_algorithm() -> None:
    """Links take no time, additions neither; encryption 1 s, products 0.1 s, decryption 2 s a number; steps 1 s, 3 s.

    One client with d columns, the server with those of the intercept and no other, batches of 2, one output.
    """
    times = {"encrypt": "1 s", "add": "0 s", "multiply": "100 ms", "decrypt": "2 s"}
    world: dict[str, Any] = {
        "data": {"name": "breast_cancer", "train_rows": 90, "test_fraction": 0.1, "scale": "standard"},
        "partition": {"clients": 1, "by": "columns"},
        "timing": {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "3 s"}},
        "training__batch": 2,
        "stop": {"rounds": 2},
        "record": "events",
    }
    entry = {"kind": "he_lr", "encryption": {"kind": "paillier", "times": times}}
    ends = {
        form: rounds(run(tiny({"it": {**entry, "form": form}}, **world), "it"))["end_s"].tolist()
        for form in ("coordinator", "sshe")
    }
    d = 30
    product = 2 * d * 0.1 + d  # the client's; the server's, one encrypted mask, is done before
    first = 2 + product + (d + 1) * 2 + 1
    assert ends["coordinator"] == pytest.approx([first, 3 + 2 * first])
    # shares of d and 1 numbers; products; z decrypted and encrypted; 3 masks or shares at the server; e decrypted
    shares = d + (2 * d * 0.1 + 2) + (2 * 2 + 2) + (2 * 0.1 + 2 + 2) + (2 * 2 + product) + 2 * d + 1
    # the next round begins with the server's d shares, while the client decrypts one gradient, steps and encrypts 1
    assert ends["sshe"] == pytest.approx([shares, 2 * shares])


@pytest.mark.parametrize("keys", [{}, SHARES])
def test_a_round_has_a_closed_form_from_its_trace(keys: dict[str, Any]) -> None:
    scenario = regression(stop={"rounds": 40}, **keys)
    forms = scenario.protocols["it"].protocol.closed_forms(setting(scenario, "it", data_of(scenario, "it")))
    form = forms[0]
    assert isinstance(form, ClosedForm)
    lasts = rounds(run(scenario, "it", timing_only=True)).iloc[5:]
    mean = (lasts["end_s"] - lasts["start_s"]).mean()
    assert form.mean.low * 0.98 <= mean <= form.mean.high * 1.02


def test_ciphertexts_of_phe_give_the_same_masked_gradient_in_as_many_bytes() -> None:
    paillier = pytest.importorskip("phe").paillier
    public, private = paillier.generate_paillier_keypair(n_length=1024)
    scenario = regression("breast_cancer", encryption={"kind": "paillier", "key": 1024})
    server, clients = learners(scenario, "it", 0, data_of(scenario, "it"))
    batch = Batch(0, np.arange(3))
    scores = clients[1].encrypt_scores(batch)
    scores.run()
    residuals = server.residuals(batch, [scores.result])
    residuals.run()
    product = clients[1].product("gradient", batch, residuals.result)
    product.run()
    numbers = opened(residuals.result.value.numpy(), 1)[:, 0]
    x, mask = clients[1].training_table[:3].numpy(), clients[1].mask("gradient", batch).numpy()[:, 0]
    cipher = [public.encrypt(float(e), precision=2.0**-30) for e in numbers]
    sums = [sum(float(x[i, j]) * cipher[i] for i in range(3)) + public.encrypt(-float(mask[j])) for j in range(2)]
    found = opened(product.result.value.numpy(), 1)[:2, 0]
    assert [private.decrypt(each) for each in sums] == pytest.approx(found.tolist(), abs=1e-7)
    assert max(-(-each.ciphertext().bit_length() // 8) for each in sums) <= 256 == product.result.shape[1]


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"host": 2}, "host: 2 is for form: sshe"),
        ({"form": "sshe", "host": 5}, "host: 5 of 4 clients\n  allowed: 1 to 4"),
        ({"encryption": {"kind": "paillier", "packed": 2}}, "each number is multiplied\n  allowed: 1"),
        ({"fraction_bits": 41}, "fraction_bits"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"form": "arbiter"}, "coordinator"),
        ({"training": {"loss": {"kind": "focal"}}}, "focal is not logistic"),
        ({"codec": {"kind": "by_direction", "down": "float16"}}, "allowed: plain"),
    ],
)
def test_keys_are_checked(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        tiny({"it": {"kind": "he_lr", **keys}})
    assert says in str(caught.value)


def test_what_needs_the_data_is_checked_before_a_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(40, 8)), y=np.arange(40) / 8)
    numbers = {"file": str(tmp_path / "rows.npz"), "label": "y", "task": "regression"}
    with pytest.raises(ScenarioError, match="the labels are numbers"):
        checked(tiny({"it": KINDS["he_lr"]}, data=numbers), timing_only=False)
    crash = {"kind": "failure", "at": "9 ms", "repair": "5 ms", "interrupted": "lost"}
    with pytest.raises(ScenarioError, match="client-2 would lose its part of a round"):
        checked(tiny({"it": KINDS["he_lr"]}, timing__clients={"select": 2, "availability": crash}), timing_only=False)
