"""PGD: its ball, its ascent, closed forms for a linear server; and what smoothing and rounding certify against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attacked_runs import finished
from attacked_servers import DTYPE, Rounding, binary_labels, net, random, uploads
from hypothesis import given, settings, strategies as st
from scipy.stats import binomtest, norm as normal
from thorough import examples
from torch import Tensor, nn
from torch.nn import functional

from vflsim.attacks import chosen, evaluate
from vflsim.attacks.base import binomial_low, share
from vflsim.attacks.pgd import Pgd, ascend, certified_radii, class_counts, lengths
from vflsim.errors import ResultsError
from vflsim.learning.tasks import BINARY, MULTICLASS
from vflsim.streams import generator

NORMS = ("linf", "l2")


@settings(max_examples=examples(20))
@given(
    norm=st.sampled_from(NORMS),
    omega=st.floats(0.05, 3),
    step=st.floats(0.01, 5),
    steps=st.integers(1, 6),
    widths=st.sampled_from([(6, 3), (6, 5, 3), (6, 1)]),
    client=st.sampled_from([1, 2]),
)
def test_no_step_leaves_the_ball(
    norm: Any, omega: float, step: float, steps: int, widths: tuple[int, ...], client: int
) -> None:
    server = net(widths)
    sent = {1: random(8, 4, seed=1), 2: random(8, 2, seed=2)}
    labels = torch.arange(8) % 3 if widths[-1] == 3 else binary_labels(random(8, 1, seed=3))
    task = MULTICLASS if widths[-1] == 3 else BINARY
    for taken in range(1, steps + 1):
        attack = Pgd(norm=norm, steps=taken)
        found = attack.perturbed(uploads(server, sent, labels), client, omega, step, task)
        assert float(lengths(found - sent[client], norm).max()) <= omega * (1 + 1e-12)


@settings(max_examples=examples(20))
@given(norm=st.sampled_from(NORMS), step=st.floats(0.01, 2), seed=st.integers(0, 20))
def test_the_loss_never_falls_on_a_convex_model(norm: Any, step: float, seed: int) -> None:
    """The cross entropy of a linear server is convex in an upload, so even long steps go up."""
    server, labels, h = net((5, 4), seed), torch.arange(10) % 4, random(10, 5, seed=seed + 1)
    seen: list[Tensor] = []

    def losses(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none")

    def arrive(at: Tensor, _: int) -> Tensor:
        seen.append(losses(server(at)).detach())
        return at

    ascend(lambda at: losses(server(at)).sum(), h, arrive, 1.0, step, 12, norm)
    rising = torch.stack([losses(server(h)).detach(), *seen]).diff(dim=0)
    assert float(rising.min()) >= -1e-12
    assert float(rising.sum(0).min()) > 0


@pytest.mark.parametrize("norm", NORMS)
def test_a_linear_server_is_attacked_as_the_closed_form_says(norm: Any) -> None:
    """Binary: the loss falls with y w·h, so the worst upload is the corner against sign(w), or the point along w."""
    server, h, other = net((6, 1)), random(20, 4, seed=1), random(20, 2, seed=2)
    labels = binary_labels(random(20, 1, seed=3))
    found = Pgd(norm=norm, steps=30).perturbed(uploads(server, {1: h, 2: other}, labels), 1, 1.5, 0.1, BINARY)
    w = server[0].weight.detach()[0, :4]
    away = (1 - 2 * labels) * (w.sign() if norm == "linf" else w / w.norm())
    torch.testing.assert_close(found, h + 1.5 * away)


@pytest.mark.parametrize("norm", NORMS)
def test_a_step_below_one_half_is_undone_by_rounding_and_a_longer_one_is_not(norm: Any) -> None:
    h = random(30, 5, seed=1) * 3
    rounded = uploads(net((5, 4)), {1: h}, torch.arange(30) % 4, Rounding())

    def moved(step: float, iterate: Any) -> Tensor:
        found = Pgd(iterate=iterate, norm=norm).perturbed(rounded, 1, 2.0, step, MULTICLASS)
        assert torch.equal(found, found.round())
        return lengths(found - h.round(), norm)

    assert not moved(0.1, "received").any()
    assert 1 <= float(moved(1.0, "received").max()) <= 2.5
    assert float(moved(0.1, "sent").max()) >= 2, "steps that add up before rounding are not undone"


def test_a_row_whose_gradient_vanishes_stays_where_it_is() -> None:
    h = random(3, 2)
    for norm in NORMS:
        assert torch.equal(ascend(lambda at: at.sum() * 0, h, lambda at, _: at, 1.0, 0.5, 3, norm), h)


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
    by_theorem = SIGMA / 2 * (normal.ppf(low) - normal.ppf(1 - low))
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
    ticks = torch.from_numpy(normal.ppf((np.arange(24) + 0.5) / 24)).to(DTYPE)
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


ENTRIES = {
    "linear": {"kind": "synchronous", "codec": "round", "models": {"server": {"kind": "linear"}}},
    "mlp": {"kind": "synchronous", "codec": "round", "models": {"server": {"kind": "mlp", "hidden": [8]}}},
    "float": {"kind": "synchronous"},
}


def test_a_linear_server_never_moves_beyond_the_first_order_term(tmp_path: Path) -> None:
    results = finished(ENTRIES, tmp_path / "study", stop={"rounds": 20})
    found = evaluate(results, chosen(["rounding"], ["rounding.rows=20"]))
    values = {name: own.set_index("measure")["value"] for name, own in found.tables["rounding"].groupby("protocol")}
    assert values.keys() == {"linear", "mlp"}
    assert 0 < values["linear"]["moved"] <= values["linear"]["first_order"]
    assert values["linear"][["remainder", "within", "proven"]].tolist() == [0, 1, 1]
    assert values["mlp"]["proven"] == 0
    assert values["mlp"]["remainder"] == 0  # of ReLU, nearly everywhere
    assert found.left_out["rounding of float"].startswith("its uploads are not rounded")


def test_saturated_rows_have_no_bound(tmp_path: Path) -> None:
    loud = ENTRIES["linear"] | {"training": {"client_optimizer": {"kind": "sgd", "lr": 1e4}}}
    results = finished({"loud": loud}, tmp_path / "study", stop={"rounds": 2})
    with pytest.raises(ResultsError, match="all rows saturate"):
        evaluate(results, chosen(["rounding"], []))
