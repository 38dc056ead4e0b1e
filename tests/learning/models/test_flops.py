"""FLOPs against counts by hand: two operations a multiply-add."""

import pytest
import torch
from torch import nn

from vflsim.learning.models import footprint
from vflsim.learning.models.footprint import flops_of


@pytest.mark.parametrize("rows", [1, 7])
def test_linear_layers_cost_two_operations_a_weight_and_row(rows: int) -> None:
    forward, backward = flops_of(nn.Linear(20, 6), (rows, 20), torch.float32)
    assert forward == 2 * rows * 20 * 6
    assert backward == 2 * rows * 20 * 6  # of the weights; features need no gradient


def test_hidden_layers_also_pass_the_gradient_on() -> None:
    forward, backward = flops_of(nn.Sequential(nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 3)), (4, 20), torch.float64)
    assert forward == 2 * 4 * (20 * 6 + 6 * 3)
    assert backward == 2 * 4 * (20 * 6 + 2 * 6 * 3)


def test_convolutions_cost_every_position_of_the_kernel() -> None:
    forward, _ = flops_of(nn.Conv2d(1, 4, 3, padding=1), (2, 1, 8, 8), torch.float32)
    assert forward == 2 * 2 * 4 * 9 * 64


def test_the_model_itself_is_left_alone() -> None:
    model = nn.Linear(3, 2).eval()
    before = [w.clone() for w in model.parameters()]
    flops_of(model, (5, 3), torch.float32)
    assert not model.training
    assert all(map(torch.equal, before, model.parameters()))
    assert all(w.grad is None for w in model.parameters())


def test_the_gradient_of_the_input_costs_one_more_product_of_the_first_layer() -> None:
    model = nn.Sequential(nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 3))
    without, with_it = (flops_of(model, (4, 20), torch.float32, input_gradient=asked)[1] for asked in (False, True))
    assert with_it - without == 2 * 4 * 20 * 6


class Twice(nn.Module):
    """A layer that is applied twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x))


def frozen(model: nn.Module) -> nn.Module:
    return model.requires_grad_(False)


def applied_twice(model: nn.Module) -> nn.Module:
    model.register_forward_hook(lambda layer, _given, output: nn.functional.linear(output, layer.weight))
    return model


ALIKE = {
    "wider": (nn.Linear(6, 7), 2 * 4 * 6 * 7),
    "deeper": (nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), 2 * 2 * 4 * 6 * 6),
    "no layer of PyTorch": (Twice(), 2 * 2 * 4 * 6 * 6),
    "with a hook": (applied_twice(nn.Linear(6, 6)), 2 * 2 * 4 * 6 * 6),
}


@pytest.mark.parametrize(("model", "expected"), ALIKE.values(), ids=ALIKE)
def test_a_model_that_resembles_one_counted_before_has_its_own_flops(model: nn.Module, expected: int) -> None:
    assert flops_of(nn.Linear(6, 6), (4, 6), torch.float32)[0] == 2 * 4 * 6 * 6
    assert flops_of(model, (4, 6), torch.float32)[0] == expected
    assert flops_of(nn.Linear(6, 6), (8, 6), torch.float32)[0] == 2 * 8 * 6 * 6


def test_frozen_weights_cost_no_gradient() -> None:
    first, last = nn.Linear(6, 6), nn.Linear(6, 6)
    _, both = flops_of(nn.Sequential(first, last), (4, 6), torch.float32)
    _, one = flops_of(nn.Sequential(frozen(first), last), (4, 6), torch.float32)
    assert (both, one) == (2 * 4 * 6 * 6 * 3, 2 * 4 * 6 * 6)


def test_models_of_the_same_layers_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    flops_of(nn.Linear(11, 5), (3, 11), torch.float32)
    monkeypatch.setattr("vflsim.learning.models.footprint.FlopCounterMode", None)  # counting again would fail
    assert flops_of(nn.Linear(11, 5), (3, 11), torch.float32)[0] == 2 * 3 * 11 * 5


def test_only_so_many_counts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "_known_flops", {})
    monkeypatch.setattr(footprint, "_MOST_KNOWN", 2)
    for width in (1, 2, 3):
        assert flops_of(nn.Linear(width, 1), (1, width), torch.float32)[0] == 2 * width
        assert 0 < len(footprint._known_flops) <= 2
