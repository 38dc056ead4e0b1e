"""The keys of FedVS; and the plan of field, points and scales that follows from them, the scenario and the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import model_validator

from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField
from vflsim.coding.lagrange import LagrangeCode
from vflsim.coding.quantise import Quantiser, choose_bits, worst_sum
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.models.client import ClientModel
from vflsim.protocols.base import Protocol
from vflsim.protocols.fedvs.plan import Arithmetic, CodingPlan
from vflsim.setting import Setting
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


PRIMES: dict[str, tuple[int, ...]] = {
    "2^31-1": (MERSENNE_31,),
    "2^61-1": (MERSENNE_61,),
    "auto": (MERSENNE_31, MERSENNE_61),
}
"""The fields that ``prime`` allows: the first with enough bits is used, else the last."""
ENOUGH_BITS = 16
"""Total bits of both scales for which ``prime: auto`` accepts the smaller field."""
MAGNITUDE = "magnitude"
"""The public fact about a client's data: the scales follow from everybody's."""
_ROWS = 4096


@dataclass(frozen=True, slots=True)
class _Magnitude:
    """A bound of Σ_c |x̂_rc| over the rows of one client's expanded features, and their number of columns."""

    largest: float
    columns: int

    def after_rounding(self, data_bits: int) -> int:
        """Bound Σ_c |x̄_rc| over all rows."""
        return math.floor(Fraction(self.largest) * (1 << data_bits) + Fraction(self.columns, 2))


def coding_plan(protocol: CodedKeys, setting: Setting, seed: int) -> CodingPlan:
    """Make the plan that the parties of a coded run share.

    Raises ValueError if no scales, or not the given ones, keep sums from wrapping, and for a batch that is too large.
    """
    clients, models, data = setting.clients, setting.models, setting.data
    magnitudes = {client: _magnitude_in(setting, client) for client in clients}
    quantiser = _quantiser(protocol, magnitudes)
    return CodingPlan(
        code=LagrangeCode(quantiser.field, protocol.K, protocol.T, len(clients)),
        quantiser=quantiser,
        columns={client: each.columns for client, each in magnitudes.items()},
        row_bounds={client: each.after_rounding(quantiser.data_bits) for client, each in magnitudes.items()},
        weight_bound=protocol.weight_bound,
        rows=data.rows,
        batch=setting.batch,
        embedding=models[clients[0] - 1].embedding,
        arithmetic=protocol.arithmetic,
        seed=seed,
    )


def magnitude(setting: Setting, client: int) -> float:
    """Bound Σ_c |x̂_rc| over the training rows of a client's expanded features. Raises ValueError if it overflows."""
    return _magnitude(setting.data, client, setting.models[client - 1]).largest


def _magnitude_in(setting: Setting, client: int) -> _Magnitude:
    """Return what a client has told of its data, or compute it."""
    if setting.public is None:
        return _magnitude(setting.data, client, setting.models[client - 1])
    return _Magnitude(setting.public[client][MAGNITUDE], columns_of(setting, client))


def _magnitude(data: LoadedData, client: int, model: ClientModel) -> _Magnitude:
    features, powers, bias = data.features[client - 1]["train"], model.powers, model.biased
    assert powers is not None, "checked when the scenario was loaded"
    largest = 0.0
    whole = features.cpu().numpy().reshape(len(features), -1)
    columns = powers * whole.shape[1] + bias
    for start in range(0, len(whole), _ROWS):  # limits the memory of powers in float64
        x = np.abs(whole[start : start + _ROWS].astype(np.float64))
        power, sums = x, x.sum(1) + bias
        for _ in range(powers - 1):
            with np.errstate(over="ignore"):  # the error below says so
                power = power * x
                sums += power.sum(1)
        largest = max(largest, float(sums.max()))
    if largest == math.inf:
        raise ValueError(
            f"features of client {client} are too large: their powers up to {powers} add up to more than a float can "
            "hold; allowed: finite sums; scale the features (data.scale), or lower the degree"
        )
    # A float64 sum of n numbers ≥ 0 underestimates the true one by less than n 2^-53 of it, in any order.
    return _Magnitude(largest * (1 + columns * 2.0**-52), columns)


def _quantiser(protocol: CodedKeys, magnitudes: Mapping[int, _Magnitude]) -> Quantiser:
    fields = [PrimeField(p) for p in PRIMES[protocol.prime]]
    if protocol.data_bits is not None and protocol.weight_bits is not None:
        return _checked(Quantiser(fields[0], protocol.data_bits, protocol.weight_bits), protocol, magnitudes)
    columns = sum(each.columns for each in magnitudes.values())
    magnitude = math.nextafter(float(sum(Fraction(each.largest) for each in magnitudes.values())), math.inf)
    for field in fields[:-1]:
        with suppress(ValueError):
            bits = choose_bits(field, magnitude, columns, protocol.weight_bound)
            if sum(bits) >= ENOUGH_BITS:
                return Quantiser(field, *bits)
    return Quantiser(fields[-1], *choose_bits(fields[-1], magnitude, columns, protocol.weight_bound))


def _checked(quantiser: Quantiser, protocol: CodedKeys, magnitudes: Mapping[int, _Magnitude]) -> Quantiser:
    """Return the quantiser of given bits. Raises ValueError if sums might wrap."""
    rows = [each.after_rounding(quantiser.data_bits) for each in magnitudes.values()]
    worst, largest = worst_sum(rows, quantiser.weight_limit(protocol.weight_bound)), quantiser.field.largest
    if worst > largest:
        raise ValueError(
            f"with data_bits: {quantiser.data_bits}, weight_bits: {quantiser.weight_bits} and weights up to "
            f"{protocol.weight_bound:g}, sums may grow to {worst:,}, and p = {protocol.prime} brings back up to "
            f"{largest:,}; allowed: scales with which no sum can wrap; leave out both to have them chosen, or give "
            f"fewer bits{'' if protocol.prime == '2^61-1' else ', prime: 2^61-1,'} or a smaller weight_bound"
        )
    return quantiser


def expanded_columns(setting: Setting) -> int:
    """Count Σ_i d_i D_i, plus one per bias, of all participants."""
    return sum(columns_of(setting, client) for client in setting.clients)


def columns_of(setting: Setting, client: int) -> int:
    """Count d D, plus one for a bias, of one client."""
    model = setting.models[client - 1]
    return (model.powers or 0) * math.prod(setting.data.shapes[client - 1]) + model.biased
