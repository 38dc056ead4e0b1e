"""Data of consecutive rounds, the interface between recurrences and book-keeping; and obstacles to recurrences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.stages import Ints
from vflsim.timing.base import Floats

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Moves:
    """Transfers of n rounds in one direction, to the server or from it, each array of shape (n, m), or broadcast to it.

    A transfer lasts from ``began`` to ``ends`` (inf: no transfer) and moves ``counted`` of its ``sizes`` bytes, fewer
    if it is aborted. ``rates`` are in bit/s.
    """

    upward: bool
    began: Floats
    ends: Floats
    sizes: Ints
    counted: Ints
    rates: Floats


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages in server steps of n rounds: sums, counts and maxima (n,) over rows, and over clients."""

    rows: tuple[Ints, Ints, Ints]
    clients: tuple[Ints, Ints, Ints]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rounds ``first`` up to ``first + n``.

    ``ends`` (n,) are the ends of the server's steps, ``waited`` (n,) their starts. ``used`` (n, M): whose embeddings a
    step used (None: everyone's). ``steps`` (n, M), or (n, steps, M): when clients have stepped in the course of the
    round if ``steps_during``, otherwise with what its end has sent them (inf: never).
    Transfers are sent ``during`` a round, ``after`` its end as its consequences, or ``before`` the first one.
    ``ordered``: all consequences of a round precede the end of the next.
    """

    first: int
    ends: Floats
    waited: Floats
    used: Bools | None
    steps: Floats
    during: tuple[Moves, ...]
    after: tuple[Moves, ...]
    ages: Ages
    ordered: bool
    before: tuple[Moves, ...] = ()
    steps_during: bool = False


class Recurrence(Protocol):
    """A round-based protocol: every round follows from the previous one.

    Example::

        class Twice:
            def __init__(self, inner: Recurrence) -> None:
                self.inner = inner

            def advance(self, first: int, count: int) -> Any:
                return self.inner.advance(first, count)
    """

    def advance(self, first: int, count: int) -> Chunk:
        """Return the next ``count`` rounds, from ``first`` on: whole blocks, or a part of one.

        Raises ``UndecidedError``.
        """


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A value of ``key`` for which a protocol's recurrence does not hold. It holds for ``allowed`` values.

    Example::

        Obstacle(key="patience", what="a deadline", allowed="none").key  # 'patience'
    """

    key: str
    what: str
    allowed: str
