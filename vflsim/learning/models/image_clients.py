"""The models of clients that hold images: CNN, LeNet and ResNet-18."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from vflsim.learning.models.client_base import ClientModel
from vflsim.learning.models.shapes import Activation, Norm
from vflsim.vocabulary.on_demand import nn
from vflsim.vocabulary.quantities import Count

LENET_SIDE = 12
"""The smallest image side that survives LeNet: halved, cut by a 5 × 5 kernel, halved again."""


class CnnClient(ClientModel):
    """Blocks of convolution, activation and 2 × 2 max pooling, then a linear layer.

    A side of one pixel is not pooled any further, so that narrow pieces of an image, such as single rows, are welcome.

    Example: ``{kind: cnn, channels: [16, 32], embedding: 64, kernel: 5, activation: relu}``
    """

    kind: Literal["cnn"] = "cnn"
    channels: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The channels that each block puts out."""
    kernel: Count = 3
    """The side of the kernels, odd; images are padded with zeros to keep their size."""
    activation: Activation = "relu"
    """The non-linearity of every block."""

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError(f"the kernel must have an odd side to keep an image's size, not {kernel}")
        return kernel

    def check(self, feature_shape: tuple[int, ...]) -> None:
        """Images only, of any size."""
        _check_image(self.kind, feature_shape)

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """The convolutional network of (channels, height, width) images."""
        from vflsim.learning.models.layers import ACTIVATIONS

        self.check(feature_shape)
        channels, height, width = feature_shape
        layers: list[nn.Module] = []
        for filters in self.channels:
            window = (min(2, height), min(2, width))
            layers += [
                nn.Conv2d(channels, filters, self.kernel, padding=self.kernel // 2),
                ACTIVATIONS[self.activation](),
                nn.MaxPool2d(window),
            ]
            channels, height, width = filters, height // window[0], width // window[1]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * width, self.embedding))


class LenetClient(ClientModel):
    """LeNet-5 in today's form, ReLU and max pooling (LeCun et al. 1998, Fig. 2).

    5 × 5 convolutions to 6 channels (padded by 2, as 28 × 28 images need) and to 16, each pooled, then linear layers
    of 120, 84 and ``embedding``.

    Example: ``{kind: lenet, embedding: 84}``
    """

    kind: Literal["lenet"] = "lenet"

    def check(self, feature_shape: tuple[int, ...]) -> None:
        """Images only, of at least 12 × 12 pixels."""
        _check_image(self.kind, feature_shape, LENET_SIDE)

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """LeNet for (channels, height, width) images."""
        from vflsim.learning.models.layers import perceptron

        self.check(feature_shape)
        channels, height, width = feature_shape
        pixels = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            *perceptron((16 * pixels, 120, 84, self.embedding), "relu"),
        )


class Resnet18Client(ClientModel):
    """ResNet-18 in the form for small images: 3 × 3 convolutions in 8 residual blocks (He et al. 2016).

    Example: ``{kind: resnet18, embedding: 64, width: 16, norm: group}``
    """

    kind: Literal["resnet18"] = "resnet18"
    width: Count = 64
    """The channels of the first two blocks; each further pair has twice as many as the one before."""
    norm: Norm = "batch"
    """``batch`` normalises over the batch, as in the paper: no batch may then have a single row. ``group`` normalises
    each row by itself, in groups of channels."""

    def check(self, feature_shape: tuple[int, ...]) -> None:
        """Images only, of any size."""
        _check_image(self.kind, feature_shape)

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """ResNet-18 for (channels, height, width) images."""
        from vflsim.learning.models.layers import resnet18

        self.check(feature_shape)
        return resnet18(feature_shape[0], self.width, self.norm, self.embedding)


def _check_image(kind: str, feature_shape: tuple[int, ...], side: int = 1) -> None:
    remedy = "partition by image_rows, image_columns or patches, or choose linear, polynomial or mlp"
    if len(feature_shape) != 3:
        raise ValueError(
            f"a {kind} client needs images (channels, height, width), and its features have the shape "
            f"{feature_shape}; {remedy}"
        )
    _, height, width = feature_shape
    if min(height, width) < side:
        raise ValueError(
            f"a {kind} client needs images of at least {side} × {side} pixels, not {height} × {width}; "
            "use fewer clients or larger patches, or choose cnn, linear, polynomial or mlp"
        )
