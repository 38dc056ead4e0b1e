"""Codecs: the bytes on the wire, the decoded tensors, and the sizes of messages."""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from vflsim.codecs.base import Codec, Plain
from vflsim.codecs.by_direction import ByDirection, OneKind
from vflsim.vocabulary.imported import OrModule

CodecKind: TypeAlias = OneKind | ByDirection
CODECS: tuple[type[Codec], ...] = get_args(CodecKind)
AnyCodec = Annotated[CodecKind, Field(discriminator="kind"), OrModule(Codec)]

__all__ = ["CODECS", "AnyCodec", "Codec", "Plain"]
