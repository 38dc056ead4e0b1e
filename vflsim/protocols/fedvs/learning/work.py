"""Operations of coded clients that one kernel computes for several clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ShareWork:
    """An operation that shares a client's weights of a round."""

    place: int
    round: int
