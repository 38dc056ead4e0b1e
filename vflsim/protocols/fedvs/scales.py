"""The plan of a coded protocol: field, points and scales, derived from the scenario and the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField
from vflsim.coding.lagrange import LagrangeCode
from vflsim.coding.quantise import Quantiser, choose_bits, worst_sum
from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.models.client import ClientModel
from vflsim.protocols.fedvs.learning.plan import CodingPlan
from vflsim.setting import Setting

if TYPE_CHECKING:
    from vflsim.protocols.fedvs.keys import CodedKeys

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
