"""Obstacles to a protocol's recurrence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The value of ``key``, for which a protocol's recurrence does not hold; it holds for ``allowed`` values.

    Example::

        Obstacle(key="patience", what="a deadline", allowed="none").key  # 'patience'
    """

    key: str
    what: str
    allowed: str
