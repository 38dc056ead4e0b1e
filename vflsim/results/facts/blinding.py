"""Blinding in ``run.json``: the fixed point, and the rounds in which masks were left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, PositiveInt

from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.streams import few, party_name


class BlindingFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The blinding of one run.

    Embeddings are integers modulo 2^``bits`` with ``fraction`` bits after the point, and no element exceeds
    ``largest``. ``rounds_missing`` rounds lacked the embedding of some client, ``lacked`` counts them by client, and
    ``missing`` is what happened then. ``context`` is the digest of what the run depends on, to which its masks are
    bound.
    """

    bits: int
    fraction: int
    missing: Literal["wait", "skip", "stop"]
    largest: float = Field(gt=0)
    rounds_missing: int = Field(default=0, ge=0)
    lacked: dict[PositiveInt, PositiveInt] = Field(default_factory=dict)
    context: str = ""

    @classmethod
    def of(cls, group: BlindedSum, rows: Sequence[Mapping[str, Any]]) -> BlindingFacts:
        """Compute the facts from the rows of the table of missing masks."""
        lacked = Counter(client for row in rows for client in row["clients"])
        return cls(
            bits=group.blinding.bits,
            fraction=group.blinding.fraction,
            missing=group.blinding.missing,
            largest=group.largest,
            rounds_missing=len(rows),
            lacked=dict(sorted(lacked.items())),
            context=group.context,
        )

    def sentence(self) -> str:
        """Say how many rounds lacked a client's embedding, whose, and what happened then."""
        clients = few([f"{party_name(client)} in {count:,}" for client, count in self.lacked.items()])
        rounds = f"{self.rounds_missing:,} round{'' if self.rounds_missing == 1 else 's'}"
        return f"{rounds} lacked a blinded embedding: {clients} (missing: {self.missing})"
