"""The models of the server: the aggregated embedding in, predictions (logits or values) out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field, PlainValidator, ValidationInfo

from vflsim.learning.models.build import Arguments, construct, trial_run
from vflsim.learning.models.shapes import Activation, Chain
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import ImportPath
from vflsim.vocabulary.on_demand import nn
from vflsim.vocabulary.quantities import Count, Quantity

NamedLayer: TypeAlias = Literal["batch_norm", Activation]
_WIDTH = Quantity(at_least=1, whole=True)


def _layer(value: object, info: ValidationInfo) -> object:
    """A name, or a width; not a union of both, which would complain once for each of them."""
    symbols = (info.context or {}).get("symbols") or {}
    if not isinstance(value, str) or value in symbols or not value.isidentifier():
        return _WIDTH.convert(value, symbols)
    if value not in get_args(NamedLayer):
        names = ", ".join(get_args(NamedLayer))
        raise ValueError(f"there is no layer {value!r}; allowed: {_WIDTH.allowed} (a linear layer's width), {names}")
    return value


Layer: TypeAlias = Annotated[int | NamedLayer, PlainValidator(_layer, json_schema_input_type=Count | NamedLayer)]


class ServerModel(Part, ABC):
    """The server's network, f(·; θ_0)."""

    kind: str
    """The name of this kind, as scenarios write it."""

    @abstractmethod
    def build(self, inputs: int, outputs: int) -> nn.Module:
        """A new module mapping (b, inputs) to (b, outputs), weights drawn from PyTorch's generator.

        ``inputs`` is the width of the aggregated embedding, ``outputs`` what the task asks for (``Task.outputs``).
        Outputs are logits or values: no final soft-max or sigmoid, which the losses contain.
        """

    def chain(self, inputs: int, outputs: int) -> Chain | None:
        """Return the chain of linear layers that ``build`` makes; None if it makes anything else."""
        return None

    def check(self, inputs: int, outputs: int) -> None:
        """Raise ValueError if this model cannot map ``inputs`` to ``outputs``."""


class LinearServer(ServerModel):
    """A linear classifier (or regression) on the aggregated embedding.

    Example: ``{kind: linear, bias: false, fan_in: 16}``
    """

    kind: Literal["linear"] = "linear"
    bias: bool = True
    """Whether there is a bias. Without it, on concatenated embeddings, the layer is one linear head for each client."""
    fan_in: Count | None = None
    """Draw initial weights (and bias) from U(±1/√fan_in); without it, fan_in is the number of inputs. With the width of
    an embedding, each client's linear head starts as a layer of its own would."""

    def chain(self, inputs: int, outputs: int) -> Chain:
        """One linear layer."""
        return Chain((inputs, outputs), bias=self.bias)

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """One linear layer."""
        layer = nn.Linear(inputs, outputs, bias=self.bias)
        if self.fan_in is not None:
            for parameter in layer.parameters():
                parameter.data *= (inputs / self.fan_in) ** 0.5
        return layer


class MlpServer(ServerModel):
    """A multi-layer perceptron: Linear [BatchNorm] activation for every hidden layer, then Linear.

    Example: ``{kind: mlp, hidden: [64, 32], batch_norm: true, activation: relu}``
    """

    kind: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The widths of the hidden layers."""
    batch_norm: bool = False
    """Normalise every hidden layer over the batch. No batch may then have a single row (``build.least_batch``)."""
    activation: Activation = "relu"
    """The non-linearity of the hidden layers."""

    def chain(self, inputs: int, outputs: int) -> Chain | None:
        """The perceptron, unless it normalises."""
        return None if self.batch_norm else Chain((inputs, *self.hidden, outputs), self.activation)

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """The perceptron, its last layer linear."""
        from vflsim.learning.models.layers import perceptron

        return nn.Sequential(*perceptron((inputs, *self.hidden, outputs), self.activation, self.batch_norm))


class LayersServer(ServerModel):
    """Layers in a row, the last one linear: for networks that ``mlp`` has no word for.

    FedVS's for the credit data (App. C), Linear-BatchNorm-Linear-ReLU-BatchNorm-WeightNorm-Linear, is
    ``layers: [64, batch_norm, 32, relu, batch_norm]`` with ``weight_norm: true`` (the paper does not say the widths).

    Example: ``{kind: layers, layers: [64, batch_norm, 32, relu], weight_norm: true}``
    """

    kind: Literal["layers"] = "layers"
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]
    """In order: a number is a linear layer of that width, a name a batch normalisation or a non-linearity. A linear
    layer to the outputs follows. With batch_norm, no batch may have a single row."""
    weight_norm: bool = False
    """Whether direction and length of the last linear layer's weights are trained apart (Salimans & Kingma 2016)."""

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """The layers, and the linear one that follows."""
        from vflsim.learning.models.layers import ACTIVATIONS

        built: list[nn.Module] = []
        width = inputs
        for layer in self.layers:
            if isinstance(layer, int):
                built.append(nn.Linear(width, layer))
                width = layer
            else:
                built.append(nn.BatchNorm1d(width) if layer == "batch_norm" else ACTIVATIONS[layer]())
        last = nn.Linear(width, outputs)
        return nn.Sequential(*built, nn.utils.parametrizations.weight_norm(last) if self.weight_norm else last)


class VggServer(ServerModel):
    """VGG on the aggregated embedding, seen as a square image (Simonyan & Zisserman 2015).

    Blocks of two 3 × 3 convolutions with ReLU and 2 × 2 max pooling, then linear layers with ReLU, without dropout.
    VGG13, which FedVS's Table 1 has for a server, is ``channels: [64, 128, 256, 512, 512]``, ``hidden: [4096, 4096]``.

    Example: ``{kind: vgg, side: 8, channels: [64, 128], hidden: [256], batch_norm: true}``
    """

    kind: Literal["vgg"] = "vgg"
    side: Count
    """The embedding is an image of side × side pixels, with as many channels as it then has."""
    channels: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The channels that each block puts out. A side of one pixel is not pooled any further."""
    hidden: tuple[Count, ...] = ()
    """The widths of the hidden linear layers."""
    batch_norm: bool = False
    """Normalise every convolution over the batch. No batch may then have a single row."""

    def check(self, inputs: int, outputs: int) -> None:
        """The embedding must fill the image's channels."""
        if inputs % self.side**2:
            raise ValueError(
                f"a vgg server of side {self.side} takes aggregated embeddings of {self.side**2} columns a channel, "
                f"and they have {inputs}; set embedding: {self.side**2}, or another side"
            )

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """The convolutional network of the embedding's image."""
        from vflsim.learning.models.layers import perceptron, vgg_blocks

        self.check(inputs, outputs)
        image = (inputs // self.side**2, self.side, self.side)
        blocks, features = vgg_blocks(image, self.channels, self.batch_norm)
        return nn.Sequential(
            nn.Unflatten(1, image), *blocks, nn.Flatten(), *perceptron((features, *self.hidden, outputs), "relu")
        )


class LogisticServer(ServerModel):
    """Federated logistic regression (VAFL Sec. 5.1): the aggregated embedding, plus a bias, is the logit.

    The weights are the clients'; the embedding has to be as wide as the task has outputs.

    Example: ``{kind: logistic, bias: false}``
    """

    kind: Literal["logistic"] = "logistic"
    bias: bool = True
    """Whether the server trains a bias. Without it, the server has no weights."""

    def check(self, inputs: int, outputs: int) -> None:
        """The embedding must be as wide as the output."""
        if inputs != outputs:
            raise ValueError(
                f"a logistic server takes the aggregated embedding as the logits, so it must be {outputs} wide, "
                f"not {inputs}; set embedding: {outputs} (and aggregate: sum or mean), or choose a linear server"
            )

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """A bias per output, or nothing."""
        from vflsim.learning.models.layers import Offset

        self.check(inputs, outputs)
        return Offset(outputs) if self.bias else nn.Identity()


class ModuleServer(ServerModel):
    """Any ``torch.nn.Module`` of the user's, by Python import path.

    Importing runs the Python module that the path names: name only code that you trust.

    Example: ``{kind: module, path: "my_models:Top", arguments: {hidden: 64}}``
    """

    kind: Literal["module"] = "module"
    path: ImportPath
    """``package.module:Class``, or a function that returns a module."""
    arguments: Arguments = Field(default_factory=dict)
    """Keyword arguments. ``inputs`` and ``outputs`` are added where the class's signature names them."""

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """Import and call; ValueError if it does not import, does not accept the arguments, or is no module."""
        return construct(self.path, self.arguments, inputs=inputs, outputs=outputs)

    def check(self, inputs: int, outputs: int) -> None:
        """Build one and send zeros through; ValueError unless (2, outputs) comes out, reproducibly."""
        trial_run(self.path, lambda: self.build(inputs, outputs), (inputs,), outputs)


ServerModelKind: TypeAlias = LinearServer | MlpServer | LayersServer | VggServer | LogisticServer | ModuleServer
SERVER_MODELS: tuple[type[ServerModel], ...] = get_args(ServerModelKind)
AnyServerModel = Annotated[ServerModelKind, Field(discriminator="kind")]
