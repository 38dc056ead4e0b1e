"""The models of a client: features of one party in, its embedding out."""

from __future__ import annotations

from abc import ABC
from math import prod
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field

from vflsim.learning.models.build import Arguments, construct, parameters_named, trial_run
from vflsim.learning.models.chains import Chain
from vflsim.learning.models.client_base import ClientModel
from vflsim.learning.models.image_clients import CnnClient, LenetClient, Resnet18Client
from vflsim.learning.models.shapes import Activation, cardinalities_of
from vflsim.vocabulary.imported import ImportPath
from vflsim.vocabulary.on_demand import nn
from vflsim.vocabulary.quantities import Count, Quantity


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

    @property
    def biased(self) -> bool:
        """Whether there is a bias."""
        return self.bias

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

    @property
    def biased(self) -> bool:
        """Whether there is a bias."""
        return self.bias

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


class DeepFmClient(_FieldClient):
    """DeepFM (Guo et al. 2017): first-order weights, a factorisation machine and a perceptron on the same vectors.

    Example: ``{kind: deepfm, embedding: 16, factors: 8, hidden: [64, 32]}``
    """

    kind: Literal["deepfm"] = "deepfm"

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """DeepFM of a table's columns."""
        from vflsim.learning.models.tabular import DeepFm

        return DeepFm(cardinalities_of(feature_shape), self.factors, self.hidden, self.embedding)


class WideDeepClient(_FieldClient):
    """Wide & Deep (Cheng et al. 2016): a linear model beside a perceptron on numbers and vectors of categories.

    Example: ``{kind: wide_deep, embedding: 16, factors: 8, hidden: [64, 32]}``
    """

    kind: Literal["wide_deep"] = "wide_deep"

    def network(self, feature_shape: tuple[int, ...]) -> nn.Module:
        """Wide & Deep of a table's columns."""
        from vflsim.learning.models.tabular import WideDeep

        return WideDeep(cardinalities_of(feature_shape), self.factors, self.hidden, self.embedding)


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
