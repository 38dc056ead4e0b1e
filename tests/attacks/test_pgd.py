"""PGD: its ball, its ascent on a convex loss, closed forms for a linear server, and what rounding does to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attacked_servers import Rounding, binary_labels, net, random, uploads
from hypothesis import given, settings, strategies as st
from thorough import examples
from torch import Tensor
from torch.nn import functional

from vflsim.attacks.pgd import Pgd, ascend, lengths
from vflsim.learning.tasks import BINARY, MULTICLASS

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
