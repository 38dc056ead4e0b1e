"""Certified radii: Clopper and Pearson's bounds, Thm 2, and PGD against the smoothed server."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attacked_servers import DTYPE, binary_labels, net, random, uploads
from scipy.stats import binomtest, norm
from torch import Tensor, nn

from vflsim.attacks.base import binomial_low, share
from vflsim.attacks.pgd import ascend, certified_radii, class_counts
from vflsim.learning.tasks import BINARY, MULTICLASS
from vflsim.streams import generator

ROWS, SIGMA = 1000, 0.7


@pytest.mark.parametrize("n", [1, 17, 1000])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_bounds_of_shares_are_scipys(n: int, alpha: float) -> None:
    for hits in {0, 1, n // 2, n - 1, n}:
        exact = binomtest(hits, n, alternative="greater").proportion_ci(1 - alpha, method="exact")
        assert binomial_low(hits, n, alpha) == pytest.approx(exact.low, rel=1e-10)
        both = binomtest(hits, n).proportion_ci(0.95, method="exact")
        found = share(torch.arange(n) < hits)
        assert found == pytest.approx((hits / n, both.low, both.high), rel=1e-10)


def test_radii_are_those_of_the_theorem() -> None:
    hits, n, alpha = [1000, 990, 700, 530, 500, 0], 1000, 0.001
    low = np.array([binomtest(k, n, alternative="greater").proportion_ci(0.999, method="exact").low for k in hits])
    radii = certified_radii(hits, n, alpha, SIGMA)
    by_theorem = SIGMA / 2 * (norm.ppf(low) - norm.ppf(1 - low))
    np.testing.assert_allclose(radii[:3], by_theorem[:3], rtol=1e-9)
    assert (radii[3:] == 0).all(), "a class that may be the less likely one is not certified"


def radii_of(server: nn.Module, h: Tensor, samples: int = 400) -> tuple[Tensor, Tensor]:
    """The class and the certified radius of every row, at an error level that 1,000 rows will not meet."""
    bits, task = generator(0, 1, "test"), BINARY if server[-1].out_features == 1 else MULTICLASS
    some = uploads(server, {1: h}, torch.zeros(len(h), 1, dtype=DTYPE))
    guessed = class_counts(some, task, SIGMA, 50, bits, "guess").argmax(1)
    hits = class_counts(some, task, SIGMA, samples, bits, "count").gather(1, guessed[:, None])[:, 0]
    return guessed, torch.from_numpy(certified_radii(hits.tolist(), samples, 1e-7, SIGMA))


def test_a_linear_servers_radius_is_never_above_the_distance_to_its_boundary() -> None:
    """Under N(0, σ²) a linear server is right with Φ(margin / σ‖w‖): smoothing leaves its boundary where it is."""
    server, h = net((4, 1)), random(ROWS, 4, seed=1)
    logits = server(h).detach()[:, 0]
    distance = logits.abs() / server[0].weight.detach().norm()
    guessed, radii = radii_of(server, h)
    certified = radii > 0
    assert 0.5 < float(certified.double().mean()) < 1
    assert torch.equal(guessed[certified], (logits > 0).long()[certified])
    assert bool((radii <= distance).all())
    assert float((distance[certified] - radii[certified]).min()) < 0.2, "the bound is close for some rows"
    labels = binary_labels(logits[:, None])
    for row, radius in zip(*(part[certified] for part in (torch.arange(ROWS), radii)), strict=True):
        one, label = h[row : row + 1], labels[row : row + 1]
        worst = one - float(radius) * (2 * label - 1) * server[0].weight.detach() / server[0].weight.detach().norm()
        assert bool((server(worst) > 0) == (server(one) > 0))


def test_pgd_never_beats_the_radius_of_a_small_net() -> None:
    """1,000 rows. The attack goes up the mean loss over noise; the smoothed class is that of a fine grid of noise."""
    server, h = net((2, 12, 2), seed=4), random(ROWS, 2, seed=1)
    ticks = torch.from_numpy(norm.ppf((np.arange(24) + 0.5) / 24)).to(DTYPE)
    grid = SIGMA * torch.cartesian_prod(ticks, ticks)

    def smoothed(at: Tensor) -> Tensor:
        with torch.no_grad():
            return server(at[:, None] + grid).argmax(2).double().mean(1)

    guessed, radii = radii_of(server, h)
    noise = SIGMA * random(24, 1, 2, seed=7)
    certified = radii > 0
    rows, at_most, labels = h[certified], radii[certified], guessed[certified]
    assert len(rows) > 500

    def loss(at: Tensor) -> Tensor:
        logits = server(at * at_most[:, None] + noise)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.repeat(len(noise)), reduction="sum")

    scaled = rows / at_most[:, None]  # every row in units of its radius: one ball for all
    found = ascend(loss, scaled, lambda at, _: at, 1.0, 0.2, 20, "l2") * at_most[:, None]
    moved = (found - rows).norm(dim=1)
    assert bool((moved <= at_most * (1 + 1e-9)).all())
    assert float((moved / at_most).mean()) > 0.9
    before, after = smoothed(rows), smoothed(found)
    assert torch.equal((before > 0.5).long(), labels)
    assert torch.equal((after > 0.5).long(), labels)
    closest = torch.where(labels == 1, after, 1 - after).min()
    assert float(closest) < 0.8, "the attack comes close for some rows"


def test_counts_do_not_depend_on_how_many_samples_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    server, h = net((4, 3)), random(9, 4, seed=1)
    some = uploads(server, {1: h[:, :1], 2: h[:, 1:]}, torch.zeros(9, dtype=torch.int64))
    together = class_counts(some, MULTICLASS, 1.0, 40, generator(0, 1, "test"), "count")
    monkeypatch.setattr("vflsim.attacks.pgd._ELEMENTS", 7 * h.numel())
    assert torch.equal(class_counts(some, MULTICLASS, 1.0, 40, generator(0, 1, "test"), "count"), together)
    assert together.sum(1).tolist() == [40] * 9
