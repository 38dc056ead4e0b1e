"""What really arrives at the server, under every kind of protocol: clipped rows, and noise of the stated deviation."""

import math
from typing import Any

import pytest
import torch
from protocols_by_kind import HEADS
from scipy import stats
from thorough import every_pair
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, run, tiny
from torch import Tensor

from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.releases import Release
from vflsim.learning.privacy.mechanisms import GaussianNoise
from vflsim.scenario.resolve import setting
from vflsim.vocabulary.execution_options import USUAL, Execution

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


@pytest.mark.sampled(5)
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
    release = Release.__call__

    def watched(self: Release, h: Tensor) -> Tensor:
        before.append(h.detach())
        after.append(release(self, h))
        return after[-1]

    monkeypatch.setattr(Release, "__call__", watched)
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
