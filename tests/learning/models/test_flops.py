"""FLOPs against counts by hand: two operations a multiply-add."""

import pytest
import torch
from torch import nn

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
