"""Heavy tails in ``run.json``: a delay of which a run's rounds are too few for means over seeds to be normal."""

from __future__ import annotations

from pydantic import BaseModel, Field

WORRYING = 0.5
"""Share of a delay's variance in the slowest draw of a run above which Student's t covers too seldom."""


class HeavyTail(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The delay of a run with the heaviest tail: the activity (``upload delay``), its ``kind`` of law, and whose it is.

    ``share`` of the variance lies in the slowest of ``draws``, the run's rounds or its cycles of bursts
    (:func:`~vflsim.timing.tail_share.tail_share`). ``infinite``: there is no finite variance.
    """

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
