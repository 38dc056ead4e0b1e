"""What every model of a client is: features of one party in, its embedding out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod

from vflsim.learning.models.chains import Chain
from vflsim.learning.models.shapes import TableShape
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import nn
from vflsim.vocabulary.quantities import Count


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
        from vflsim.learning.models.tabular import OneHot

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
        return False
