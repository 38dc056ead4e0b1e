"""The contents of messages by kind. ``vflsim verify`` computes the bytes of messages from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from vflsim.codecs import Codec
from vflsim.codecs.frame import ONLY, Shape, Spec
from vflsim.learning.privacy.blinding.keys import KEY_BYTES
from vflsim.protocols.blinded import PublicKey, PublicKeys
from vflsim.setting import Exchange, Setting
from vflsim.streams import SERVER
from vflsim.world.messages import Embedding, EvaluationAnswer, EvaluationRequest, Gradient


@dataclass(frozen=True, slots=True)
class Content:
    """The tensors of a message by name, and its number of sample ``ids``.

    ``passed_on`` names the tensors that the server forwards without re-encoding.
    """

    tensors: Mapping[str, Spec] = field(default_factory=dict)
    ids: int = 0
    passed_on: tuple[str, ...] = ()

    def nbytes(self, codec: Codec, receiver: int) -> int:
        """Count the bytes of the message on its way to ``receiver``."""
        passed_on = dict.fromkeys(self.passed_on, codec.towards(SERVER))
        return codec.towards(receiver).size_of(self.tensors, self.ids, passed_on)


Contents: TypeAlias = Mapping[str, Sequence[Content]]
"""By message kind, the alternative contents of such a message."""
EMPTY = Content()


def single(shape: Shape, dtype: torch.dtype, ids: int = 0) -> Content:
    """Return the content of a message with one tensor."""
    return Content({ONLY: Spec(shape, dtype)}, ids)


def named(shapes: Mapping[str, Shape], dtype: torch.dtype, ids: int = 0, passed_on: tuple[str, ...] = ()) -> Content:
    """Return the content of a message with tensors of one dtype."""
    return Content({name: Spec(shape, dtype) for name, shape in shapes.items()}, ids, passed_on)


def ids_of(setting: Setting, rows: int) -> int:
    """Return the number of sample ids in a message about a batch of this many rows: 0 for a shared batch."""
    return rows if setting.training.batches == "own" else 0


def evaluated(setting: Setting, width: int) -> list[Content]:
    """Return the possible contents of an answer with one tensor of this width for every row of a split."""
    return [single((len(labels), width), setting.dtype) for labels in setting.data.labels.values()]


def split_contents(setting: Setting, exchange: Exchange, sender: int, receiver: int, rows: int) -> Contents:
    """Return the contents of plain split training: embeddings, gradients and evaluation; with blinding, public keys.

    A gradient is empty where a round went on without the client.
    """
    keys = {} if setting.blinded_sum is None else {PublicKey.kind: [single((KEY_BYTES,), torch.uint8)]}
    if receiver == SERVER:
        (up,) = exchange.up.values()
        embedding = single(up, setting.uploaded, ids_of(setting, rows))
        return {Embedding.kind: [embedding], EvaluationAnswer.kind: evaluated(setting, up[-1]), **keys}
    if sender != SERVER:
        return {}
    if keys:
        keys = {PublicKeys.kind: [single((len(setting.clients), KEY_BYTES), torch.uint8)]}
    down = named(exchange.down, setting.dtype)
    return {Gradient.kind: [down, EMPTY], EvaluationRequest.kind: [EMPTY], **keys}
