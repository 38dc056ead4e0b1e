"""What VFL-CZOFO and DPZV send, spend and refuse."""

import math
from itertools import pairwise

import pytest
from tiny_worlds import data_of, events, metrics, raw, rounds, run, tiny

from vflsim.errors import BudgetError, ScenarioError
from vflsim.learning.privacy.accounting import epsilon_of
from vflsim.scenario import load
from vflsim.scenario.resolve import setting
from vflsim.simulation.run import run_protocol

NOISE = {"clip": 1, "delta": 1e-5, "noise_multiplier": 2}
DPZV = {"kind": "dpzv", "noise": NOISE}
BYTES = 8
"""Numbers have 8 bytes here."""


def bytes_of(protocol: dict, kind: str, **changes: object) -> list[int]:
    """The sizes of messages that arrived: the end of the run cuts others off."""
    sent = events(run(tiny({"it": protocol}, **changes)), f"transfer.{kind}")
    return sorted({int(size) for size in sent["bytes"][sent["outcome"] == "done"]})


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("protocol", "up"), [
    ({"kind": "czofo", "samples": 3}, 1),
    ({"kind": "czofo", "samples": 3, "perturbs": "weights"}, 4),
    ({**DPZV, "samples": 3}, 6),
], ids=["czofo", "weights", "dpzv"])  # fmt: skip
def test_as_many_embeddings_go_up_as_losses_need_and_a_number_each_comes_down(protocol: dict, up: int) -> None:
    one = {"training__last_batch": "drop"}  # all batches have 20 rows
    plain, gradient = (bytes_of({"kind": "asynchronous"}, kind, **one)[0] for kind in ("embedding", "gradient"))
    frame = plain - 20 * 6 * BYTES
    (upload,), (answer,) = (bytes_of(protocol, kind, **one) for kind in ("embedding", "loss_differences"))
    assert (upload, answer) == (frame + up * 20 * 6 * BYTES, pytest.approx(frame + 3 * BYTES, abs=16))
    assert answer < gradient / 10


def test_the_codec_compresses_both_ways() -> None:
    quarter = {"kind": "by_direction", "up": {"kind": "scalar_quantiser", "bits": 8}, "down": "float16"}
    plain, coded = ({"kind": "czofo", "samples": 64, **more} for more in ({}, {"codec": quarter}))
    assert max(bytes_of(coded, "embedding")) < max(bytes_of(plain, "embedding")) / 4
    assert max(bytes_of(coded, "loss_differences")) < max(bytes_of(plain, "loss_differences")) / 2


def test_epsilon_counts_every_step_in_which_a_row_was() -> None:
    outcome = run(tiny({"it": DPZV}, stop={"rounds": 60}, evaluate={"every": "1 rounds"}))
    spent = metrics(outcome)["epsilon"].tolist()
    assert all(before <= after for before, after in pairwise(spent))
    batches = dict.fromkeys(range(1, 5), 0)
    for (m,) in rounds(outcome)["used"]:
        batches[m] += 1
    whole = [number // 4 for number in batches.values()]  # epochs of 4 full batches and a last one: 81 rows of 20
    most = range(sum(n * 4 // 5 for n in whole), sum(-(-number // 4) for number in batches.values()) + 1)
    assert spent[-1] in [epsilon_of(2, 1e-5, n) for n in most]
    assert "epsilon" not in metrics(run(tiny({"it": {"kind": "czofo"}})))


def test_a_run_ends_when_a_row_has_had_the_releases_that_its_noise_is_for() -> None:
    noise = {"clip": 1, "delta": 1e-5, "epsilon": 5, "per": "run", "releases": 3}
    scenario = tiny({"it": {"kind": "dpzv", "noise": noise}}, stop={"rounds": 60})
    error = run_protocol(scenario, "it", 0, data_of(scenario)).error
    assert isinstance(error, BudgetError)
    assert "has had them all" in str(error)


def test_noise_moves_an_answer_by_its_standard_deviation() -> None:
    """σ of the mean over B rows is 2 C z / B: twice the noise moves weights by twice as much."""

    def moved(multiplier: float) -> float:
        noise = {"clip": 1e-6, "delta": 1e-5, "noise_multiplier": multiplier}  # all is noise
        outcome = run(tiny({"it": {"kind": "dpzv", "noise": noise}}, stop={"updates": 1}))
        before = run(tiny({"it": {"kind": "dpzv", "noise": noise}}, stop={"rounds": 1}))
        return max(
            float((outcome.weights[name] - before.weights[name]).abs().max())
            for name in outcome.weights if name.startswith("client")
        )  # fmt: skip

    assert moved(200) == pytest.approx(2 * moved(100), rel=0.05)


@pytest.mark.parametrize(("protocol", "words"), [
    ({"kind": "czofo", "smoothing": 0}, "allowed: a number above 0"),
    ({"kind": "czofo", "samples": 0}, "samples"),
    ({"kind": "czofo", "perturbs": "labels"}, "allowed: embeddings, weights"),
    ({"kind": "czofo", "directions": "cube"}, "allowed: sphere, gaussian"),
    ({"kind": "dpzv"}, "noise"),
    ({"kind": "dpzv", "noise": {**NOISE, "batches": "secret"}}, "clients know their batches\n  allowed: known"),
    ({"kind": "dpzv", "noise": {"clip": 1, "delta": 1e-5, "epsilon": 5, "per": "run"}}, "allowed: noise.releases"),
    ({"kind": "dpzv", "noise": NOISE, "mechanism": {"kind": "gaussian", **NOISE}}, "mechanism"),
])  # fmt: skip
def test_mistakes_are_refused_with_what_is_allowed(protocol: dict, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load(raw({"it": protocol}))


def test_check_says_what_epsilon_is_of() -> None:
    scenario = tiny({"it": {"kind": "dpzv", "noise": {**NOISE, "noise_multiplier": 1}}})
    said = scenario.protocols["it"].protocol.describe(setting(scenario, "it", data_of(scenario)))
    assert said.startswith("answers to all clients: ε = 4.377 (δ = 1e-05) per release of a sample")
    assert math.isclose(epsilon_of(1, 1e-5), 4.377, rel_tol=1e-3)


def test_estimates_learn_what_gradients_learn() -> None:
    """With so many directions an estimate is near the gradient, and the loss falls as far."""
    changes = {"stop": {"rounds": 400}, "evaluate": {"every": "400 rounds"}, "models__aggregate": "concat"}
    losses = [
        metrics(run(tiny({"it": kind}, record="rounds", **changes)))["test_loss"].tolist()
        for kind in ({"kind": "asynchronous"}, {"kind": "czofo", "samples": 40})
    ]
    (first, *_, exact), (*_, estimated) = losses
    assert estimated - exact < 0.25 * (first - exact)
