"""Heavy tails in ``run.json``: a delay of which a run's rounds are too few for means over seeds to be normal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from vflsim.results.read import Results

WORRYING = 0.5
"""Share of a delay's variance in the slowest draw of a run above which Student's t covers too seldom."""


class HeavyTail(BaseModel):
    """The delay of a run with the heaviest tail: the activity (``upload delay``), its ``kind`` of law, and whose it is.

    ``share`` of the variance lies in the slowest of ``draws``, the run's rounds or its cycles of bursts
    (:func:`~vflsim.timing.tail_share.tail_share`). ``infinite``: there is no finite variance.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    activity: str
    kind: str
    draws: float = Field(ge=0)
    clients: tuple[int, ...] = Field(min_length=1)
    share: float = Field(ge=0, le=1)
    infinite: bool = False

    @property
    def worrying(self) -> bool:
        """Whether means over seeds are far from normal."""
        return self.share > WORRYING


def heavy_tail_note(results: Results) -> Iterator[str]:
    """Yield the note that ± of mean times covers too seldom, with the protocols and the delay that causes it."""
    found: dict[str, list[HeavyTail]] = {}
    for run in results.runs:
        if not run.failed and run.info.heavy_tail is not None and run.info.heavy_tail.worrying:
            found.setdefault(run.protocol, []).append(run.info.heavy_tail)
    causes: dict[str, list[str]] = {}
    for name, tails in found.items():
        causes.setdefault(_cause(max(tails, key=lambda tail: tail.share)), []).append(name)
    for cause, names in causes.items():
        yield (
            f"± of mean times, bytes and differences covers less than 95 % ({', '.join(names)}): {cause}. "
            "More rounds a run help, or quantiles."
        )


def _cause(tail: HeavyTail) -> str:
    from vflsim.analysis.rounds import numbered  # imports all closed forms

    whose = f"the {tail.activity} of {numbered(tail.clients)} ({tail.kind})"
    if tail.infinite:
        return f"{whose} has no finite variance"
    return f"of {whose}, the slowest of {tail.draws:,.3g} draws has {math.floor(100 * tail.share)} % of the variance"
