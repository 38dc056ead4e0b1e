"""Floating-point operations of a model, counted on the real module."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def flops_of(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, input_gradient: bool = False
) -> tuple[float, float]:
    """Count the FLOPs of the forward and of the backward pass for an input of ``shape``.

    The backward pass is with respect to the weights, and to the input with ``input_gradient``.
    PyTorch's own counter runs a copy of the model on the meta device: shapes, no values. It counts matrix products and
    convolutions (two operations a multiply-add), which take most of the time, and not element-wise work.
    """
    ghost = copy.deepcopy(model).to("meta").train()
    inputs = torch.empty(shape, dtype=dtype, device="meta", requires_grad=input_gradient)
    with FlopCounterMode(display=False) as forward:
        output = ghost(inputs)
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    return float(forward.get_total_flops()), float(backward.get_total_flops())
