"""The table of energy by party and by what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

ENERGY_BY_PARTY = "energy_by_party"
"""The name of the table, which runs have in which a party says what it draws."""

SCHEMA = pa.schema([
    pa.field("party", pa.string(), nullable=False),
    pa.field("state", pa.string(), nullable=False),
    pa.field("seconds", pa.float64(), nullable=False),
    pa.field("watts", pa.float64(), nullable=False),
    pa.field("amount", pa.int64(), nullable=False),
    pa.field("joules_each", pa.float64(), nullable=False),
    pa.field("joules", pa.float64(), nullable=False),
])  # fmt: skip


def energy_by_party(columns: Mapping[str, Any]) -> pa.Table:
    """Make the table ``energy_by_party.parquet``: a row for each party and state (``idle``, ``compute``, ``radio``).

    ``joules`` is ``watts * seconds + joules_each * amount``; the amount is bytes of a radio, and FLOPs of compute.
    """
    return pa.table(dict(columns), schema=SCHEMA)
