"""What messages of FedVS carry: shares, coded embeddings, and lists of clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from vflsim.codecs.frame import Shape
from vflsim.coding.field import PrimeField
from vflsim.protocols.fedvs.messages import (
    CodedEmbedding,
    DataRequest,
    DataShare,
    Missing,
    ModelRequest,
    ModelShare,
    Returned,
    Shared,
    Sharers,
)
from vflsim.protocols.fedvs.scales import PRIMES, columns_of
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.tracing.contents import EMPTY, Content, Contents, single
from vflsim.world.messages import Gradient

if TYPE_CHECKING:
    from vflsim.protocols.fedvs.keys import CodedKeys


def coded_contents(protocol: CodedKeys, setting: Setting, sender: int, receiver: int, places: int) -> Contents:
    """Return the contents of messages about a batch of this many places within a segment.

    If shares can be lost, the number of named clients is not known beforehand; nor is the number of padded rows.
    """
    width, everybody = setting.widths[0], range(len(setting.clients) + 1)
    if receiver == SERVER:
        coded = _elements(protocol, (places, width))
        return {CodedEmbedding.kind: coded, Shared.kind: [EMPTY], Missing.kind: _names(everybody)}
    if sender == SERVER:
        most, padding = places * protocol.K, -setting.data.rows % protocol.K
        gradients = [single((rows, width), setting.dtype) for rows in range(most - padding, most + 1)]
        return {Gradient.kind: [*gradients, EMPTY], Sharers.kind: _names(_sharers(protocol, setting))}
    columns, segment = columns_of(setting, sender), -(-setting.data.rows // protocol.K)
    return {
        DataShare.kind: _elements(protocol, (segment, columns)),
        ModelShare.kind: _elements(protocol, (columns, width)),
        **{kind: [EMPTY] for kind in (DataRequest.kind, ModelRequest.kind, Returned.kind)},
    }


def _elements(protocol: CodedKeys, shape: Shape) -> Sequence[Content]:
    """Return a tensor of elements of the field, one for each field that the protocol may choose."""
    return [single(shape, PrimeField(p).wire_dtype) for p in PRIMES[protocol.prime]]


def _names(counts: Iterable[int]) -> Sequence[Content]:
    return [single((count,), torch.int64) for count in counts]


def _sharers(protocol: CodedKeys, setting: Setting) -> Sequence[int]:
    """Return how many clients can be in a sum: without those whose shares are lost, which happens in outages alone."""
    interrupted = [getattr(setting.timings[client].availability, "interrupted", "") for client in setting.clients]
    many, most = len(setting.clients), protocol.sharers or len(setting.clients)
    if "lost" not in interrupted:
        return [most]
    away = sum(each != "" for each in interrupted)
    return [*range(max(0, most - away), most + 1), many]
