"""The models of a client: features of one party in, its embedding out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

from pydantic import Field, field_validator

from vflsim.learning.models.build import Arguments, construct, parameters_named, trial_run
from vflsim.learning.models.shapes import Activation, Chain, Norm, TableShape, cardinalities_of
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import ImportPath
from vflsim.vocabulary.on_demand import nn
from vflsim.vocabulary.quantities import Count, Quantity


class ClientModel(Part, ABC):
    """A client's network, h_m = f_m(x_m; θ_m)."""

    kind: str
    """The name of this kind, as scenarios write it."""
    embedding: Count
    """The width of what the client sends: the columns of h_m."""

    def build(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """A new module mapping (b, *feature_shape) to (b, embedding), weights drawn from PyTorch's generator.

        Wrap in ``build.seeded`` for weights that follow from a seed. A model that does not take codes of categories
        (``TableShape``) gets them one-hot.
        """
        if not isinstance(feature_shape, TableShape) or self.takes_codes:
            return self.network(feature_shape)
        from vflsim.learning.models.layers import OneHot

        one_hot = OneHot(feature_shape.cardinalities)
        return nn.Sequential(one_hot, self.network((one_hot.width,)))

    @abstractmethod
    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """A new module, as ``build`` returns it."""

    def chain(self, feature_shape: tuple[int, ...]) -> Chain | None:
        """Return the chain of linear layers that ``build`` makes; None if it makes anything else."""
        return None if isinstance(feature_shape, TableShape) else self._chain(prod(feature_shape))

    def _chain(self, inputs: int) -> Chain | None:
        return None

    @property
    def takes_codes(self) -> bool:
        """Whether the network itself reads the codes of categorical columns."""
        return False

    def check(self, feature_shape: tuple[int, ...]) -> None:
        """Raise ValueError if this model cannot take features of ``feature_shape``."""

    @property
    def powers(self) -> int | None:
        """D if h = Σ_{i=1..D} (x^{∘i} W^i + b^i), as coded protocols need it; None if not."""
        return None

    @property
    def biased(self) -> bool:
        """Whether such a model has b^i."""
        return bool(getattr(self, "bias", False))


class _ImageClient(ClientModel, ABC):
    """A network of images of at least ``least_side`` pixels a side."""

    least_side: ClassVar[int] = 1

    def check(self, feature_shape: tuple[int, ...]) -> None:
        """Images only, none too small."""
        remedy = "partition by image_rows, image_columns or patches, or choose linear, polynomial or mlp"
        if len(feature_shape) != 3:
            raise ValueError(
                f"a {self.kind} client needs images (channels, height, width), and its features have the shape "
                f"{feature_shape}; {remedy}"
            )
        (_, height, width), side = feature_shape, self.least_side
        if min(height, width) < side:
            raise ValueError(
                f"a {self.kind} client needs images of at least {side} × {side} pixels, not {height} × {width}; "
                "use fewer clients or larger patches, or choose cnn, linear, polynomial or mlp"
            )


class CnnClient(_ImageClient):
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


class LenetClient(_ImageClient):
    """LeNet-5 in today's form, ReLU and max pooling (LeCun et al. 1998, Fig. 2).

    5 × 5 convolutions to 6 channels (padded by 2, as 28 × 28 images need) and to 16, each pooled, then linear layers
    of 120, 84 and ``embedding``.

    Example: ``{kind: lenet, embedding: 84}``
    """

    kind: Literal["lenet"] = "lenet"

    least_side: ClassVar[int] = 12
    """What survives LeNet: halved, cut by a 5 × 5 kernel, halved again."""

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


class Resnet18Client(_ImageClient):
    """ResNet-18 in the form for small images: 3 × 3 convolutions in 8 residual blocks (He et al. 2016).

    Example: ``{kind: resnet18, embedding: 64, width: 16, norm: group}``
    """

    kind: Literal["resnet18"] = "resnet18"
    width: Count = 64
    """The channels of the first two blocks; each further pair has twice as many as the one before."""
    norm: Norm = "batch"
    """``batch`` normalises over the batch, as in the paper: no batch may then have a single row. ``group`` normalises
    each row by itself, in groups of channels."""

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """ResNet-18 for (channels, height, width) images."""
        from vflsim.learning.models.layers import resnet18

        self.check(feature_shape)
        return resnet18(feature_shape[0], self.width, self.norm, self.embedding)


class LinearClient(ClientModel):
    """h = x W + b. Images are flattened.

    Example: ``{kind: linear, embedding: 16, bias: false}``
    """

    kind: Literal["linear"] = "linear"
    bias: bool = True
    """Whether there is a b."""

    @property
    def powers(self) -> int:
        """One."""
        return 1

    def _chain(self, inputs: int) -> Chain:
        return Chain((inputs, self.embedding), bias=self.bias)

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """A linear map of the flattened features."""
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(feature_shape), self.embedding, bias=self.bias))


class PolynomialClient(ClientModel):
    """A polynomial network, h = Σ_{i=1..degree} (x^{∘i} W^i + b^i) (FedVS Eq. 1). Images are flattened.

    Example: ``{kind: polynomial, degree: 2, embedding: 32, bias: false}``
    """

    kind: Literal["polynomial"] = "polynomial"
    degree: Annotated[int, Quantity(at_least=1, at_most=64, whole=True)]
    """The highest power of a feature."""
    bias: bool = True
    """Whether there are b^i, one per power (Eq. 1 of the paper drops them)."""

    @property
    def powers(self) -> int:
        """The degree."""
        return self.degree

    def _chain(self, inputs: int) -> Chain:
        return Chain((inputs, self.embedding), bias=self.bias, powers=self.degree)

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """One linear map per power of the flattened features, summed."""
        from vflsim.learning.models.layers import PolynomialNetwork

        return PolynomialNetwork(prod(feature_shape), self.embedding, self.degree, self.bias)


class MlpClient(ClientModel):
    """A multi-layer perceptron. Images are flattened.

    Example: ``{kind: mlp, hidden: [64, 32], embedding: 16, activation: tanh, output_activation: relu}``
    """

    kind: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The widths of the hidden layers."""
    activation: Activation = "relu"
    """The non-linearity of the hidden layers."""
    output_activation: Activation | None = None
    """The non-linearity of the embedding; without it, the last layer is linear."""

    def _chain(self, inputs: int) -> Chain:
        return Chain((inputs, *self.hidden, self.embedding), self.activation, self.output_activation)

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """The perceptron of the flattened features."""
        from vflsim.learning.models.layers import ACTIVATIONS, perceptron

        layers = perceptron((prod(feature_shape), *self.hidden, self.embedding), self.activation)
        last = [] if self.output_activation is None else [ACTIVATIONS[self.output_activation]()]
        return nn.Sequential(nn.Flatten(), *layers, *last)


class _FieldClient(ClientModel, ABC):
    """A network with a trained vector for each category and each number of a table."""

    factors: Count = 10
    """The width of the trained vectors."""
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The widths of the hidden layers of the deep part (ReLU)."""

    @property
    def takes_codes(self) -> bool:
        """Yes: they choose the vectors."""
        return True

    def check(self, feature_shape: tuple[int, ...]) -> None:
        """Tables only."""
        try:
            cardinalities_of(feature_shape)
        except ValueError as error:
            raise ValueError(f"a {self.kind} client {error}; choose cnn, lenet, resnet18 or mlp") from None

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """The network of a table's columns."""
        from vflsim.learning.models.layers import DeepFm, WideDeep

        network = DeepFm if self.kind == "deepfm" else WideDeep
        return network(cardinalities_of(feature_shape), self.factors, self.hidden, self.embedding)


class DeepFmClient(_FieldClient):
    """DeepFM (Guo et al. 2017): first-order weights, a factorisation machine and a perceptron on the same vectors.

    Example: ``{kind: deepfm, embedding: 16, factors: 8, hidden: [64, 32]}``
    """

    kind: Literal["deepfm"] = "deepfm"


class WideDeepClient(_FieldClient):
    """Wide & Deep (Cheng et al. 2016): a linear model beside a perceptron on numbers and vectors of categories.

    Example: ``{kind: wide_deep, embedding: 16, factors: 8, hidden: [64, 32]}``
    """

    kind: Literal["wide_deep"] = "wide_deep"


class ModuleClient(ClientModel):
    """Any ``torch.nn.Module`` of the user's, by Python import path.

    Importing runs the Python module that the path names: name only code that you trust.

    Example: ``{kind: module, path: "my_models:Tower", embedding: 16, arguments: {depth: 3}}``
    """

    kind: Literal["module"] = "module"
    path: ImportPath
    """``package.module:Class``, or a function that returns a module."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments. ``feature_shape``, ``embedding`` and ``cardinalities`` are added where the class's signature
    names them. A module that names the cardinalities gets codes of categories; one that does not gets them one-hot."""

    @property
    def takes_codes(self) -> bool:
        """Whether its signature names the cardinalities."""
        return "cardinalities" in parameters_named(self.path)

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """Import and call; ValueError if it does not import, does not accept the arguments, or is no module."""
        offered = {"cardinalities": cardinalities_of(feature_shape)} if len(feature_shape) == 1 else {}
        return construct(self.path, self.arguments, feature_shape=feature_shape, embedding=self.embedding, **offered)

    def check(self, feature_shape: tuple[int, ...]) -> None:
        """Build one and send zeros through; ValueError unless (2, embedding) comes out, reproducibly."""
        trial_run(self.path, lambda: self.build(feature_shape), feature_shape, self.embedding)


ClientModelKind: TypeAlias = (
    LinearClient
    | PolynomialClient
    | MlpClient
    | CnnClient
    | LenetClient
    | Resnet18Client
    | DeepFmClient
    | WideDeepClient
    | ModuleClient
)
CLIENT_MODELS: tuple[type[ClientModel], ...] = get_args(ClientModelKind)
AnyClientModel = Annotated[ClientModelKind, Field(discriminator="kind")]
