"""Codecs: the bytes on the wire, the decoded tensors, and the sizes of messages."""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from vflsim.codecs.base import Codec
from vflsim.codecs.plain import Plain
from vflsim.codecs.scalar_quantiser import ScalarQuantiser
from vflsim.codecs.top_k import TopK
from vflsim.codecs.vector_quantiser import VectorQuantiser
from vflsim.vocabulary.imported import OrModule

CodecKind: TypeAlias = Plain | ScalarQuantiser | VectorQuantiser | TopK
CODECS: tuple[type[Codec], ...] = get_args(CodecKind)
AnyCodec = Annotated[CodecKind, Field(discriminator="kind"), OrModule(Codec)]

__all__ = ["CODECS", "AnyCodec", "Codec", "Plain"]
