"""The codec in ``run.json``: how many elements saturated, and what latent noise guarantees."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, Field, NonNegativeInt

from vflsim.streams import few


class CodecFacts(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """What a codec with a range, or with latent noise, did to the tensors of one run.

    ``saturated`` of ``elements`` sent lay beyond its range; ``parties`` has those that sent any, with their number.
    Evaluations without virtual time do not count. ``promise`` states what latent noise guarantees; empty without any.
    """

    kind: str
    elements: int = Field(ge=0)
    saturated: int = Field(ge=0)
    parties: dict[str, NonNegativeInt] = Field(default_factory=dict)
    promise: str = ""

    @classmethod
    def of(cls, kind: str, counts: Mapping[str, tuple[int, int]], promise: str) -> CodecFacts | None:
        """Make the facts from ``counts``, saturated and sent elements by party; None where there are none."""
        elements = sum(sent for _, sent in counts.values())
        if not elements and not promise:
            return None
        parties = {party: saturated for party, (saturated, _) in counts.items() if saturated}
        return cls(kind=kind, elements=elements, saturated=sum(parties.values()), parties=parties, promise=promise)

    def sentence(self) -> str:
        """Say how much saturated, and whose."""
        clients = few([f"{party} {count:,}" for party, count in self.parties.items()])
        return f"{self.saturated:,} of {self.elements:,} elements saturated ({self.kind}): {clients}"
