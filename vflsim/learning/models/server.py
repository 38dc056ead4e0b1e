"""What the server's model may be: the aggregated embedding in, predictions (logits or values) out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field
from torch import nn

from vflsim.learning.models.layers import Activation, Offset, perceptron
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.quantities import Count


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

    def check(self, inputs: int, outputs: int) -> None:
        """Raise ValueError if this model cannot map ``inputs`` to ``outputs``."""


class LinearServer(ServerModel):
    """A linear classifier (or regression) on the aggregated embedding."""

    kind: Literal["linear"] = "linear"

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """One linear layer with bias."""
        return nn.Linear(inputs, outputs)


class MlpServer(ServerModel):
    """A multi-layer perceptron: Linear [BatchNorm] activation for every hidden layer, then Linear."""

    kind: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)]
    """The widths of the hidden layers."""
    batch_norm: bool = False
    """Normalise every hidden layer over the batch. No batch may then have a single row (``build.least_batch``)."""
    activation: Activation = "relu"
    """The non-linearity of the hidden layers."""

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """The perceptron, its last layer linear."""
        return nn.Sequential(*perceptron((inputs, *self.hidden, outputs), self.activation, self.batch_norm))


class LogisticServer(ServerModel):
    """Federated logistic regression (VAFL Sec. 5.1): the aggregated embedding plus a trainable bias is the logit.

    The weights are the clients'; the embedding has to be as wide as the task has outputs.
    """

    kind: Literal["logistic"] = "logistic"

    def check(self, inputs: int, outputs: int) -> None:
        """The embedding must be as wide as the output."""
        if inputs != outputs:
            raise ValueError(
                f"a logistic server takes the aggregated embedding as the logits, so it must be {outputs} wide, "
                f"not {inputs}; set embedding: {outputs} (and aggregate: sum or mean), or choose a linear server"
            )

    def build(self, inputs: int, outputs: int) -> nn.Module:
        """A bias per output."""
        self.check(inputs, outputs)
        return Offset(outputs)


ServerModelKind: TypeAlias = LinearServer | MlpServer | LogisticServer
SERVER_MODELS: tuple[type[ServerModel], ...] = get_args(ServerModelKind)
AnyServerModel = Annotated[ServerModelKind, Field(discriminator="kind")]
