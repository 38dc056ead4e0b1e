"""VAFL's perturbed local embedding: noise at every layer, μ, and what of it is guaranteed."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from kept_runs import assert_interruptions_change_no_byte
from protocols_by_kind import HEADS
from scipy import stats
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, learners, metrics, run, scores_apart, tiny
from torch import Tensor, nn

from vflsim.errors import ScenarioError
from vflsim.learning.batches import Batch
from vflsim.learning.learners.client import affine_layers, perturbed
from vflsim.learning.learners.releases import Releases
from vflsim.learning.privacy.accounting import Released, epsilon_of, sampled_mu_of
from vflsim.learning.privacy.base import Plan
from vflsim.learning.privacy.mechanisms import PerturbedLocalEmbedding
from vflsim.scenario.models import Scenario
from vflsim.streams import generator
from vflsim.studies.checks.data import read_and_check

DEADLY = {"kind": "module", "path": "deadly_models:Deadly", "arguments": {"flag": "no/file"}, "embedding": 6}
MLP = {"kind": "mlp", "hidden": [7, 5], "activation": "tanh", "embedding": 6}
NOISE = {"kind": "perturbed_local_embedding", "clip": 0.8, "delta": 1e-5, "mu": 1.5, "layer_noise": 0.3}


def world(protocol: dict[str, Any] | None = None, noise: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    entry = {"dp": {"kind": "synchronous", **(protocol or {}), "mechanism": {**NOISE, **(noise or {})}}}
    return tiny(entry, **{"models__client": MLP, "timing": RANDOM_TIMING, "stop": {"rounds": 12}, **changes})


def client_of(scenario: Scenario, seed: int = 0) -> Any:
    return learners(scenario, "dp", seed, data_of(scenario))[1][2]


def batch(index: int = 0, *ids: int) -> Batch:
    return Batch(index, np.array(ids or (3, 1, 8, 20), np.int64))


def uniform(party: int, layer: int, key: str, shape: tuple[int, int], std: float = 0.3) -> Tensor:
    """Z_l of Eq. 11b, from the words of its stream."""
    bits = generator(0, party, f"mechanism.layer-{layer}/{key}").bit_generator
    shares = (bits.random_raw(math.prod(shape)) // 2**11).astype(float) / 2**53
    return torch.tensor(math.sqrt(3) * std * (2 * shares - 1)).reshape(shape)


def by_hand(client: Any, rows: Batch, weights: list[Tensor]) -> Tensor:
    """Eq. 10 written anew: tanh(w u + b + Z), and a last layer that is clipped."""
    w1, b1, w2, b2, w3, b3 = weights
    u = client.features("train")[torch.tensor(rows.ids)].flatten(1)
    key = f"{rows.origin}/{rows.index}"
    u = torch.tanh(u @ w1.T + b1 + uniform(2, 1, key, (len(rows), 7)))
    u = torch.tanh(u @ w2.T + b2 + uniform(2, 2, key, (len(rows), 5)))
    h = u @ w3.T + b3
    return h * torch.clamp(0.8 / h.norm(dim=1, keepdim=True), max=1)


def test_an_upload_has_noise_at_every_layer_and_its_gradient_goes_through_it() -> None:
    client = client_of(world())
    rows = batch()
    weights = [w.detach().clone().requires_grad_() for w in client.model.parameters()]
    h = by_hand(client, rows, weights)
    operation = client.embed(rows)
    operation.run()
    last = Releases(client.parts.mechanism, 0, 2, 90).noise("embed", 0, torch.zeros(4, 6, dtype=torch.float64))
    assert torch.allclose(operation.result.value, h.detach() + last, atol=1e-12)
    received = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad((h * received).sum(), weights)
    client._uploaded.backward(rows, received)
    for before, slope, after in zip(weights, expected, client.model.parameters(), strict=True):
        assert torch.allclose(after, before - 0.2 * slope, atol=1e-12)


def test_a_gradient_that_comes_late_meets_the_noise_of_its_own_batch() -> None:
    client = client_of(world())
    first, second = batch(0), batch(1, 5, 6)
    client.embed(first).run()
    client.embed(second).run()
    weights = [w.detach().clone().requires_grad_() for w in client.model.parameters()]
    expected = torch.autograd.grad(by_hand(client, first, weights).sum(), weights)
    client._uploaded.backward(first, torch.ones(4, 6, dtype=torch.float64))
    for before, slope, after in zip(weights, expected, client.model.parameters(), strict=True):
        assert torch.allclose(after, before - 0.2 * slope, atol=1e-12)


def test_a_batch_released_again_has_new_noise_at_the_last_layer() -> None:
    """Otherwise two releases would differ by a known amount, and cost no more than one."""
    client = client_of(world())
    again = [client.embed(batch()), client.embed(batch())]
    for operation in again:
        operation.begin()
        operation.run()
    one, other = (operation.result.value for operation in again)
    difference = (one - other) / (math.sqrt(2) * client.parts.mechanism.sigma)
    assert difference.abs().min() > 1e-6
    assert stats.kstest(difference.flatten().numpy(), "norm").pvalue > 1e-3


def test_evaluations_are_free_of_noise() -> None:
    client = client_of(world())
    operation = client.embed_split("test")
    operation.run()
    with torch.no_grad():
        h = client.model(client.features("test"))
    assert torch.allclose(operation.result.value, h * torch.clamp(0.8 / h.norm(dim=1, keepdim=True), max=1))
    filled = client.embed_split("train", "first_fill")
    filled.run()
    assert filled.result.value.shape == (90, 6)


def test_the_inner_noise_is_uniform_with_the_given_deviation() -> None:
    layer = nn.Linear(1, 1)
    with torch.no_grad(), perturbed([layer], 0.3, lambda _: generator(0, 1, "x").bit_generator):
        drawn = (layer(torch.zeros(100_000, 1)) - layer.bias).flatten().numpy()
    half = math.sqrt(3) * 0.3
    assert stats.kstest(drawn, stats.uniform(-half, 2 * half).cdf).pvalue > 1e-3
    assert drawn.std() == pytest.approx(0.3, rel=1e-2)
    assert torch.equal(layer(torch.zeros(1, 1)).detach(), layer.bias[None].detach())  # the block has ended


# --- μ ---------------------------------------------------------------------------------------------------------------


def planned(rate: float = 0.2, rounds: int = 12, **said: Any) -> PerturbedLocalEmbedding:
    mechanism = PerturbedLocalEmbedding(**{**NOISE, **said})
    return mechanism.planned(Plan(rate, math.ceil(1 / rate), rounds))


def test_known_batches_are_exactly_mu_gaussian_private() -> None:
    """Eq. 14: n releases of N(0, c²) or N(2 clip, c²) are told apart as N(0, 1) and N(μ, 1) are: δ(ε) of these."""
    mechanism = planned()  # 12 rounds of five an epoch: 3 releases of a sample
    assert mechanism.most_releases == 3
    assert math.sqrt(3) * 2 * 0.8 / mechanism.sigma == pytest.approx(1.5)
    assert mechanism.mu_of(Released(most=3)) == pytest.approx(1.5)
    epsilon = mechanism.spent(Released(most=3))
    assert epsilon == epsilon_of(math.sqrt(3) / 1.5, 1e-5, 3)
    phi = stats.norm.cdf
    delta = phi(-epsilon / 1.5 + 0.75) - math.exp(epsilon) * phi(-epsilon / 1.5 - 0.75)
    assert delta == pytest.approx(1e-5, rel=1e-4)


def test_c_of_secret_batches_is_that_of_the_theorem_for_much_noise() -> None:
    """Eq. 15: c = 2 clip N_m √K / (μ N)."""
    mechanism = planned(rate=0.01, rounds=400, mu=0.01, batches="secret")
    assert mechanism.sigma == pytest.approx(2 * 0.8 * 0.01 * math.sqrt(400) / 0.01, rel=0.1)
    spent = Released(0, ((0.01, 1, 400),))
    assert mechanism.mu_of(spent) == sampled_mu_of(mechanism.multiplier, spent) == pytest.approx(0.01, rel=1e-8)
    assert mechanism.mu_of(spent) <= 0.01
    stronger = planned(rate=0.01, rounds=400, mu=2, batches="secret")
    assert stronger.mu_of(spent) == pytest.approx(2, rel=1e-8)
    assert "μ = 2 for a whole run in the limit of many batches" in stronger.promise()


def test_runs_report_mu_and_the_epsilon_that_goes_with_it() -> None:
    for secret, epsilon in ((False, epsilon_of(math.sqrt(3) / 1.5, 1e-5, 3)), (True, None)):
        noise = {"batches": "secret"} if secret else {}
        outcome = run(world(noise=noise, training__sampling="uniform" if secret else "shuffled"))
        facts = outcome.info.privacy
        assert facts is not None
        assert facts.mu_run == pytest.approx(1.5, rel=1e-6)
        assert (facts.mechanism, facts.asked_for, facts.layer_noise) == (NOISE["kind"], "mu per run", 0.3)
        assert metrics(outcome)["epsilon"].iloc[-1] == facts.epsilon_run
        assert epsilon is None or facts.epsilon_run == epsilon
        assert outcome.info.one_by_one == ("4 mlp clients one by one: their mechanism adds noise inside the network",)


# --- whole runs ------------------------------------------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "async": {"kind": "asynchronous", "max_staleness": 3},
    "fdml": {"kind": "fdml", "models": HEADS},
    "vimadmm-j": {"kind": "vimadmm_j", "rho": 1, "local_steps": 2, "models": HEADS},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", RUNS)
def test_an_interrupted_run_writes_the_bytes_of_one_that_was_not(name: str, tmp_path: Any) -> None:
    scenario = world(RUNS[name], {"rounds": 60, "mu": 50})
    assert_interruptions_change_no_byte(scenario, tmp_path)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", [{"kind": "linear", "embedding": 6}, MLP], ids=lambda model: model["kind"])
def test_batched_and_eager_runs_agree(model: dict[str, Any]) -> None:
    scenario = world(models__client=model)
    assert scores_apart(run(scenario), run(scenario, execution=EAGER)) < 1e-9
    assert scores_apart(run(scenario), run(scenario, kind="real")) < 1e-9


def test_a_linear_client_is_the_gaussian_mechanism_with_the_noise_of_mu() -> None:
    linear = {"kind": "linear", "embedding": 6}
    scenario = world(models__client=linear, noise={"layer_noise": None})
    gaussian = {"kind": "gaussian", "clip": 0.8, "delta": 1e-5, "noise_multiplier": math.sqrt(3) / 1.5}
    other = tiny(
        {"dp": {"kind": "synchronous", "mechanism": gaussian}},
        models__client=linear,
        timing=RANDOM_TIMING,
        stop={"rounds": 12},
    )
    read_and_check(scenario)
    assert metrics(run(scenario)).equals(metrics(run(other)))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"noise": {"layer_noise": None}}, r"client 1 has 2 layers before its upload, and no noise is given"),
        (
            {"models__client": DEADLY},
            "client 1: noise at every layer needs a chain of layers",
        ),
    ],
)
def test_networks_that_the_theorem_does_not_cover_are_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        read_and_check(world(**said))
    assert caught.value.where.endswith("protocols.dp.mechanism")


def test_mu_cannot_be_planned_without_a_number_of_rounds() -> None:
    with pytest.raises(ScenarioError, match="how many mini-batches a client releases in it is not known"):
        world({"kind": "asynchronous"})


def test_layers_are_those_of_a_chain_that_ends_in_one() -> None:
    chain = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert affine_layers(chain) == [chain[1], chain[3]]
    for other in (
        nn.Sequential(nn.Linear(4, 3), nn.ReLU()),
        nn.Sequential(nn.Sequential(nn.Linear(4, 3)), nn.Linear(3, 2)),
        nn.Sequential(nn.Flatten()),
        nn.Bilinear(4, 3, 2),
    ):
        with pytest.raises(ValueError, match="chain of layers"):
            affine_layers(other)
