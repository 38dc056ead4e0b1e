"""A client's releases: noise by index and kind, samples counted one by one, budgets kept."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from protocols_by_kind import HEADS
from scipy import stats
from thorough import every_pair
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, run, tiny
from torch import Tensor

from vflsim.errors import BudgetError
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.releases import Releases
from vflsim.learning.privacy.mechanisms import Gaussian, GaussianNoise
from vflsim.scenario.resolve import setting
from vflsim.vocabulary.execution_options import USUAL, Execution

H = torch.zeros(3, 4, dtype=torch.float64)
LOUD = Gaussian(clip=1.0, delta=1e-5, noise_multiplier=1.0)


def ids(*rows: int) -> np.ndarray:
    return np.array(rows, np.int64)


def releases(mechanism: Gaussian = LOUD, seed: int = 0, party: int = 1) -> Releases:
    return Releases(mechanism, seed, party, rows=8)


def test_every_sample_of_a_release_is_counted_and_no_other() -> None:
    made = releases()
    made.begin("embed", ids(0, 3, 5))(H)
    made.begin("answer", ids(3, 7, 1))(H)
    made.begin("first_fill", slice(None))(torch.zeros(8, 4))
    assert made.counts.tolist() == [2, 2, 1, 3, 1, 2, 1, 2]


def test_a_release_that_is_never_made_counts_nothing_but_keeps_its_index() -> None:
    one, other = releases(), releases()
    one.begin("embed", ids(0, 1, 2))
    other.begin("embed", ids(0, 1, 2))(H)
    assert one.counts.sum() == 0
    assert torch.equal(one.begin("embed", ids(3, 4, 5))(H), other.begin("embed", ids(6, 4, 2))(H))


def test_noise_depends_on_seed_party_kind_and_index_alone() -> None:
    def drawn(kind: str = "embed", skip: int = 0, **which: int) -> torch.Tensor:
        made = releases(**which)
        for _ in range(skip):
            made.begin(kind, ids(0, 1, 2))
        return made.begin(kind, ids(0, 1, 2))(H)

    assert torch.equal(drawn(), drawn())
    others = [drawn("answer"), drawn(skip=1), drawn(seed=1), drawn(party=2)]
    assert not any(torch.equal(drawn(), other) for other in others)
    beside = releases()
    beside.begin("answer", ids(0))(H[:1])
    assert torch.equal(beside.begin("embed", ids(0, 1, 2))(H), drawn())


def test_private_noise_is_as_large_and_never_the_same() -> None:
    h = torch.zeros(8, 4_000, dtype=torch.float64)
    drawn = []
    for _ in range(2):
        made = releases()
        made.draw_privately()
        drawn += [made.begin("embed", slice(None))(h) for _ in range(2)]
    assert len({float(noise[0, 0]) for noise in drawn}) == 4
    # The standard deviation of 32,000 numbers is off by 5 times its own deviation once in a million tests.
    sigma = LOUD.sigma
    assert all(abs(float(noise.std()) - sigma) < 5 * sigma / 64_000**0.5 for noise in drawn)
    assert abs(float(torch.corrcoef(torch.stack([noise.flatten() for noise in drawn]))[0, 1])) < 5 / 32_000**0.5


def test_noise_inside_the_network_is_the_same_for_the_same_rows_and_private_where_releases_are() -> None:
    def drawn(made: Releases, layer: int = 1, rows: str = "-1/4") -> list[int]:
        return made.inner_bits(layer, rows).random_raw(3).tolist()

    public, one, other = releases(), releases(), releases()
    assert drawn(public) == drawn(releases())
    for made in (one, other):
        made.draw_privately()
        assert drawn(made) == drawn(made)
    found = [drawn(public), drawn(one), drawn(other), drawn(one, layer=2), drawn(one, rows="-1/5")]
    assert len({tuple(words) for words in found}) == len(found)


def test_the_noise_is_added_and_has_no_gradient() -> None:
    h = torch.ones(3, 4, dtype=torch.float64, requires_grad=True)
    released = releases().begin("embed", ids(0, 1, 2))(h)
    assert not released.requires_grad
    assert torch.allclose(released - 1, releases().begin("embed", ids(0, 1, 2))(H))


def test_twice_the_noise_is_the_same_numbers_twice_as_large() -> None:
    louder = Gaussian(clip=1.0, delta=1e-5, noise_multiplier=2.0)
    one, other = (releases(mechanism).begin("embed", ids(0, 1, 2))(H) for mechanism in (LOUD, louder))
    assert torch.equal(2 * one, other)


def test_a_sample_is_not_released_more_often_than_its_noise_is_for() -> None:
    made = releases(Gaussian(clip=1.0, delta=1e-5, epsilon=5.0, per="run", releases=2))
    made.begin("embed", ids(0, 1, 6))(H)
    made.begin("embed", ids(0, 2, 6))(H)
    before = made.counts.copy()
    with pytest.raises(BudgetError, match="for 2 releases of a sample in a run, and training row 6 has had them all"):
        made.begin("answer", ids(1, 6, 5))(H)
    assert (made.counts == before).all()
    made.begin("embed", ids(1, 2, 3))(H)


GAUSSIAN = {"kind": "gaussian", "clip": 0.4, "delta": 1e-5, "noise_multiplier": 1.5}
PERTURBED = {
    "kind": "perturbed_local_embedding", "clip": 0.4, "delta": 1e-5, "mu": 2, "releases": 9, "layer_noise": 0.1
}  # fmt: skip
"""Both have a multiplier of 1.5, so σ = 1.2."""
KINDS: dict[str, dict[str, Any]] = {
    "sync": {"kind": "synchronous"},
    "async": {"kind": "asynchronous", "max_staleness": 3},
    "t-sync": {"kind": "t_synchronous", "t": 2, "first_fill": "upload"},
    "vimsgd": {"kind": "vimsgd", "models": HEADS},
    "vimadmm": {"kind": "vimadmm", "rho": 1, "local_steps": 2, "models": HEADS},
    "vimadmm-j": {"kind": "vimadmm_j", "rho": 1, "local_steps": 2, "models": HEADS},
    "fdml": {"kind": "fdml", "models": HEADS},
}


@pytest.mark.sampled(2)
@every_pair(
    name=[*KINDS],
    mechanism={each["kind"]: each for each in (GAUSSIAN, PERTURBED)},
    execution={"batched": USUAL, "eager": EAGER},
)
def test_uploads_are_clipped_rows_plus_noise_of_the_stated_deviation(
    name: str, mechanism: dict[str, Any], execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tests of the noise, each failing one sound implementation in ten thousand; the seed is fixed."""
    before: list[Tensor] = []
    after: list[Tensor] = []
    noise = Releases.noise

    def watched(self: Releases, kind: str, index: int, h: Tensor) -> Tensor:
        drawn = noise(self, kind, index, h)
        before.append(h.detach())
        after.append(h.detach() + drawn)
        return drawn

    monkeypatch.setattr(Releases, "noise", watched)
    rates = {"training__client_optimizer": {"kind": "sgd", "lr": 0.02}}
    scenario = tiny({"dp": {**KINDS[name], "mechanism": mechanism}}, timing=RANDOM_TIMING, stop={"rounds": 24}, **rates)
    outcome = run(scenario, execution=execution)
    width = data_of(scenario).outputs if name in ("vimadmm-j", "fdml") else 6
    assert all(h.shape[1] == width for h in before)
    lengths = torch.cat([h.norm(dim=1) for h in before])
    assert lengths.max() <= 0.4 * (1 + 1e-12)
    assert (lengths > 0.4 * (1 - 1e-12)).sum() > 20, "the clip has met no row: the test would show nothing"
    assert outcome.info.privacy is not None
    assert outcome.info.privacy.sigma == pytest.approx(1.2)
    drawn = torch.cat([(a - b).flatten() for a, b in zip(after, before, strict=True)]).numpy() / 1.2
    assert len(drawn) > 2000
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    low, high = stats.chi2.ppf([5e-5, 1 - 5e-5], len(drawn))
    assert low < (drawn**2).sum() < high
    assert abs(drawn.mean()) * math.sqrt(len(drawn)) < stats.norm.ppf(1 - 5e-5)


def test_the_clip_is_per_sample_not_per_batch() -> None:
    scenario = tiny({"dp": {"kind": "fdml", "models": HEADS, "mechanism": GAUSSIAN}})
    learner = scenario.protocols["dp"].protocol.learners
    client = learner(setting(scenario, "dp", data_of(scenario)), 0).clients[1]
    assert isinstance(client, ClientLearner)
    mechanism = client.parts.mechanism
    assert isinstance(mechanism, GaussianNoise)
    h = torch.tensor([[3.0, 4.0], [0.03, 0.04], [0.0, -0.8]])
    assert torch.allclose(mechanism.bounded(h), torch.tensor([[0.24, 0.32], [0.03, 0.04], [0.0, -0.4]]))
