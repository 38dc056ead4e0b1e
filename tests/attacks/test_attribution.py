"""Attributions: captum's against hand-made ones on a linear server, and the distances between two of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attacked_servers import Rounding, net, random, uploads
from scipy.spatial.distance import correlation
from torch import Tensor, nn

from vflsim.attacks.attribution import LabelLogits, attributions, distances
from vflsim.learning.tasks import BINARY, MULTICLASS, PredictionTask

METHODS = ("integrated_gradients", "deeplift", "ablation")


def by_hand(weights: Tensor, h: Tensor) -> np.ndarray:
    """The mean over rows of w · (h − 0), over the sum of absolute values."""
    mean = (weights * h).mean(0)
    return (mean / mean.abs().sum()).numpy()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task", [MULTICLASS, BINARY], ids=lambda task: task.name)
def test_all_methods_give_w_times_x_on_a_linear_server(method: str, task: PredictionTask) -> None:
    server, h = net((5, 3 if task is MULTICLASS else 1)), random(20, 5, seed=1)
    labels = torch.arange(20) % 3 if task is MULTICLASS else (torch.arange(20) % 2)[:, None].double()
    found = attributions(uploads(server, {1: h[:, :3], 4: h[:, 3:]}, labels), task, method)
    w = server[0].weight.detach()
    own = w[labels] if task is MULTICLASS else (2 * labels - 1) * w
    np.testing.assert_allclose(found[1], by_hand(own[:, :3], h[:, :3]), rtol=1e-9)
    np.testing.assert_allclose(found[4], by_hand(own[:, 3:], h[:, 3:]), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_go_straight_through_the_codec_and_ablation_goes_through_it(method: str) -> None:
    server, h, labels = net((4, 3)), 3 * random(20, 4, seed=1), torch.arange(20) % 3
    found = attributions(uploads(server, {1: h}, labels, Rounding()), MULTICLASS, method)
    arrived = h.round() if method == "ablation" else h
    np.testing.assert_allclose(found[1], by_hand(server[0].weight.detach()[labels], arrived), rtol=1e-9)


def test_deeplift_explains_the_whole_difference_of_a_net() -> None:
    from captum.attr import DeepLift

    server, h, labels = net((4, 6, 5, 3)), random(20, 4, seed=1), torch.arange(20) % 3
    model = LabelLogits(uploads(server, {1: h}, labels), MULTICLASS)
    with pytest.warns(UserWarning, match="hooks"):
        found = DeepLift(model).attribute(h.requires_grad_())
    difference = model(h) - model(torch.zeros_like(h))
    torch.testing.assert_close(found.detach().sum(1), difference.detach())


def test_deeplift_is_refused_where_it_has_no_rule() -> None:
    server, h, labels = net((4, 6, 3), activation=nn.GELU), random(20, 4, seed=1), torch.arange(20) % 3
    some = uploads(server, {1: h}, labels)
    with pytest.raises(ValueError, match="DeepLIFT has no rule for a layer of the server's model"):
        attributions(some, MULTICLASS, "deeplift")
    assert np.isfinite(attributions(some, MULTICLASS, "integrated_gradients")[1]).all()


def test_distances_are_scipys_and_zero_for_equal_vectors() -> None:
    one, other = random(32, seed=1).numpy(), random(32, seed=2).numpy()
    found = distances(one, other)
    assert found["euclidean"] == pytest.approx(np.sqrt(((one - other) ** 2).sum()))
    assert found["correlation"] == pytest.approx(correlation(one, other))
    pairs = [(a, b) for a in range(32) for b in range(a)]
    tau = np.mean([np.sign(one[a] - one[b]) * np.sign(other[a] - other[b]) for a, b in pairs])
    assert found["tau"] == pytest.approx(tau)
    assert found["p_value"] > 0.01
    same = distances(one, one)
    assert (same["euclidean"], same["tau"]) == (0, 1)
    assert same["correlation"] == pytest.approx(0, abs=1e-12)
    assert same["p_value"] < 1e-6


def test_a_constant_vector_has_no_order() -> None:
    found = distances(np.full(5, 0.2), np.arange(5.0))
    assert np.isnan([found["correlation"], found["tau"], found["p_value"]]).all()
