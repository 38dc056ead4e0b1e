"""Which tables and views a run records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from vflsim.vocabulary.base import Part, Shorthand
from vflsim.vocabulary.quantities import Count

Record: TypeAlias = Literal["events", "rounds", "summary"]
"""The tables kept of a run: all; metrics and rounds; metrics alone."""


def _count(value: Any) -> Any:
    """Expand ``512 rows`` to 512."""
    rows = re.fullmatch(r"(.*\S)\s+rows?\s*", value) if isinstance(value, str) else None
    return value if rows is None else rows[1]


def _viewed(value: Any) -> Any:
    """Expand ``512 rows`` and 512 to ``{rows: 512}``."""
    return value if value is None or isinstance(value, Mapping | ViewRecording) else {"rows": value}


ROWS = {"type": "string", "pattern": r"^\d+ rows?$"}


class ViewRecording(Part):
    """What a run keeps of what its parties receive about some training rows.

    Example: ``{rows: 512 rows, keep: all}``
    """

    rows: Annotated[Count, Shorthand(_count, ROWS)]
    """How many training rows; the seed chooses them."""
    keep: Literal["last", "all"] = "last"
    """What arrived ``last`` about a row, or ``all`` that ever arrived: what an attacker has who forgets nothing."""


class Recording(Part):
    """What a run keeps beside its weights.

    Example: ``{tables: rounds, views: 512 rows}``
    """

    tables: Record = "events"
    """Which tables: ``events`` (all), ``rounds`` (metrics and rounds) or ``summary`` (metrics alone)."""
    views: Annotated[ViewRecording, Shorthand(_viewed, {"anyOf": [{"type": "integer", "minimum": 1}, ROWS]})] | None = (
        None
    )
    """Keep what every party received about so many training rows (``512 rows``), for ``vflsim evaluate``."""


def recording(value: Any) -> Any:
    """Expand ``summary`` to ``{tables: summary}``."""
    return value if isinstance(value, Mapping | Recording) else {"tables": value}
