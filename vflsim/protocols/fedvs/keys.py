"""The keys of FedVS, and facts that follow from the keys alone."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import model_validator

from vflsim.protocols.base import Protocol
from vflsim.protocols.fedvs.learning.plan import Arithmetic, CodingPlan
from vflsim.vocabulary.quantities import Count, NonNegativeNumber, PositiveNumber, PositiveSeconds, Quantity

Bits = Annotated[int, Quantity(at_least=0, at_most=52, whole=True)]


class CodedKeys(Protocol):
    """The keys of a protocol that decodes sums over Lagrange-coded shares: ``FedVS`` has their meaning in time."""

    kind: Literal["fedvs"] = "fedvs"
    K: Count
    """Number of segments of the data. A larger K means smaller shares, and tolerates fewer stragglers."""
    T: Count = 1
    """Number of clients that may collude without learning anything."""
    prime: Literal["2^31-1", "2^61-1", "auto"] = "2^31-1"
    """p, the size of the field: an element has 4 or 8 bytes; ``auto``: the smaller if it leaves 16 bits for scales."""
    data_bits: Bits | None = None
    """l_x, the fractional bits of a feature's powers. Give both or neither of it and ``weight_bits``."""
    weight_bits: Bits | None = None
    """l_w, the fractional bits of a weight. Default: as many as fit."""
    weight_bound: PositiveNumber = 4.0
    """The largest magnitude of a weight for which no sum can wrap. Larger weights end a run with an error."""
    late: Literal["abandoned", "finished"] = "abandoned"
    """Work of a round that is over: abandon it at once, or finish it before the next round."""
    arithmetic: Arithmetic = "coded"
    """``coded`` computes on the shares of the R fastest; ``decoded`` their decoding: the same bits, faster."""
    sharers: Count | None = None
    """The number of clients in a round's sum: those that share their models first. Default: all."""
    share_delay_factor: NonNegativeNumber | None = None
    """Ratio of a client's sharing delay to its upload delay. Default: (log² N) / |B| (Sec. 6.2), with |B| of full
    batches in every round."""
    log_base: Annotated[float, Quantity(above=1)] = 2.0
    """The base in log² N."""
    deadline: PositiveSeconds | None = None
    """Seconds after which a round with too few coded embeddings is given up."""
    too_few: Literal["wait", "skip", "stop"] = "wait"
    """Action at the deadline: ``skip`` to the next batch, or ``stop`` the run; ``wait`` (no deadline) indefinitely."""

    @property
    def threshold(self) -> int:
        """R = 2(K+T−1) + 1, the recovery threshold (Thm 5.1)."""
        return 2 * (self.K + self.T - 1) + 1

    def sharing_factor(self, plan: CodingPlan) -> float:
        """Return the ratio of a client's sharing delay to its upload delay."""
        return plan.sharing_factor(self.log_base) if self.share_delay_factor is None else self.share_delay_factor

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.data_bits is None) != (self.weight_bits is None):
            raise ValueError("data_bits and weight_bits go together; give both, or neither to have them chosen")
        if self.prime == "auto" and self.data_bits is not None:
            raise ValueError("prime: auto chooses the bits, too; leave out data_bits and weight_bits, or give a prime")
        if (self.deadline is None) != (self.too_few == "wait"):
            raise ValueError(
                f"too_few: {self.too_few} {'has no' if self.deadline is not None else 'needs a'} deadline; allowed: "
                "too_few: skip or stop with a deadline, or wait without one"
            )
        return self
