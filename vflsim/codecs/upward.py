"""The base class of codecs for uploads: embeddings, logits, predictions."""

from __future__ import annotations

from vflsim.codecs.base import Codec
from vflsim.codecs.plain import Plain

_DOWN = Plain()


class Upward(Codec):
    """A codec of messages to the server; messages to clients stay plain, unless ``gradients`` asks for both.

    Its levels are those of a model's outputs. Gradients are smaller by orders of magnitude: they would all become 0, or
    all ±1. In ``by_direction`` a scenario names the codec of each direction separately.
    """

    gradients: bool = False
    """Whether messages to clients (gradients, the server's weights) pass this codec, too."""

    def towards(self, receiver: int) -> Codec:
        """Return this codec for the server; for a client, too, if ``gradients``; else the plain one."""
        return _DOWN if receiver and not self.gradients else self
