"""A cache of exchanged messages: a party takes further steps on what it exchanged for the latest batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Entry(Generic[T]):
    value: T
    exchange: int
    used_at: int
    """The number of the step that used it last."""
    uses: int = 1


class MessageCache(Generic[T]):
    """What a party holds of its latest exchanges: at most ``size`` (W) entries, each for at most ``uses`` (R) steps.

    The step of the exchange itself is the first use. An entry may be used again when W − 1 other steps have been taken
    since, the one longest unused first; an entry older than W · R exchanges is dropped. FedBCD's Q steps on an exchange
    are a cache with W = 1 and R = Q.

    Example::

        cache = MessageCache[str](size=1, uses=3)
        cache.put("batch 0", exchange=0)
        cache.take(), cache.take(), cache.take()  # ('batch 0', 'batch 0', None)
    """

    def __init__(self, size: int, uses: int) -> None:
        self.size, self.uses = size, uses
        self._entries: list[_Entry[T]] = []
        self._steps = 0

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._entries)

    def put(self, value: T, exchange: int) -> None:
        """Add what was exchanged in exchange number ``exchange``, of which a step has been taken just now.

        Drop entries that are used up or too old, and the oldest of too many.
        """
        oldest = exchange - self.size * self.uses
        self._entries = [entry for entry in self._entries if entry.exchange >= oldest]
        if self.uses > 1:
            self._entries.append(_Entry(value, exchange, self._steps))
        self._steps += 1
        del self._entries[: -self.size]

    def take(self) -> T | None:
        """Return what the next step uses, and count the use; None if no entry may be used yet."""
        free = [entry for entry in self._entries if self._steps - entry.used_at >= self.size]
        if not free:
            return None
        entry = min(free, key=lambda each: each.used_at)
        entry.used_at, entry.uses, self._steps = self._steps, entry.uses + 1, self._steps + 1
        if entry.uses == self.uses:
            self._entries.remove(entry)
        return entry.value
