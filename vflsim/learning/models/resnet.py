"""ResNet-18 for small images (He et al. 2016, Sec. 3.3 and Table 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

Norm = Literal["batch", "group"]
_GROUPS = 8
_NORMS: dict[Norm, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(min(_GROUPS, channels), channels),
}


class _Block(nn.Module):
    """Two 3 × 3 convolutions with normalisation, beside a shortcut: the identity, or a 1 × 1 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            _NORMS[norm](outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            _NORMS[norm](outputs),
        )
        same = inputs == outputs and stride == 1
        projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.shortcut = nn.Identity() if same else nn.Sequential(projection, _NORMS[norm](outputs))
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.activation(self.body(x) + self.shortcut(x))
        return y


def resnet18(channels: int, width: int, norm: Norm, outputs: int) -> nn.Sequential:
    """A ResNet-18 of ``width``, 2, 4 and 8 times ``width`` channels, for images of ``channels``, any height and width.

    As usual for images of 32 × 32 pixels, one 3 × 3 convolution without pooling stands at the beginning.
    """
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False), _NORMS[norm](width), nn.ReLU()]
    inputs = width
    for stage in range(4):
        filters = width * 2**stage
        layers += [_Block(inputs, filters, 2 if stage else 1, norm), _Block(filters, filters, 1, norm)]
        inputs = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, outputs))
