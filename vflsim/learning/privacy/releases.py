"""A client's releases: each gets its own noise, and counts for every sample in it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import BudgetError
from vflsim.learning.privacy.accounting import WITHIN, Released
from vflsim.learning.privacy.base import Mechanism
from vflsim.streams import generator
from vflsim.vocabulary.on_demand import Tensor, torch

Rows = NDArray[np.int64] | slice
"""Row numbers of the training split, each at most once, or all of them as a slice."""
BatchKey = tuple[int, int]
"""The origin and the index of a mini-batch."""
_KEY_BYTES = 16
"""The length of a Philox key."""
_SECRET_BYTES = 32


class Releases:
    """The releases of one client's ``rows`` training samples through one mechanism.

    ``counts``, (rows,) of int64, holds how often each sample has been released: with every finished embedding of it,
    even if its upload was abandoned. This is known in virtual time, before any embedding is computed. Noise is a
    function of (seed, party, kind of release, index): the index counts the releases of this kind that have begun,
    finished or not, so the k-th embedding gets the same noise under every protocol. What would exceed the mechanism's
    own budget is not counted, and raises ``BudgetError`` when it is computed.

    Where noise is private, each release has its own of the operating system's instead, which nobody can draw again;
    noise inside the network follows from a secret of the operating system.
    """

    def __init__(self, mechanism: Mechanism, seed: int, party: int, rows: int) -> None:
        self.mechanism = mechanism
        self.counts: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.released = Released()
        self.times = 0
        """How many releases have been counted."""
        self.told: Callable[[Rows, BatchKey | None], None] | None = None
        """Told of each release that is counted."""
        self._secret: bytes | None = None
        self._seed, self._party = seed, party
        self._begun: Counter[str] = Counter()
        self._batches: dict[BatchKey, tuple[int, int]] = {}
        """Of each batch: its rows, and how often it was released."""
        self._limit: tuple[float, Callable[[], None]] | None = None

    def draw_privately(self) -> None:
        """Have noise of the operating system's generator in place of that which follows from the public seed."""
        self._secret = os.urandom(_SECRET_BYTES)

    def end_at(self, epsilon: float, end: Callable[[], None]) -> None:
        """Call ``end`` instead of counting a release that would take ε above ``epsilon``."""
        self._limit = epsilon, end

    @property
    def epsilon(self) -> float:
        """The ε of what has been released so far, at the mechanism's δ."""
        return self.mechanism.spent(self.released)

    def begin(self, kind: str, rows: Rows, batch: BatchKey | None = None) -> OneRelease:
        """Take the next index of ``kind`` for ``rows``: those of ``batch``, if they are one."""
        index = self._begun[kind]
        self._begun[kind] += 1
        return OneRelease(self, kind, index, rows, batch)

    def state(self) -> dict[str, Tensor]:
        """Give the counts by name. The begun releases follow from the calls of ``begin``."""
        batches = [(*key, *value) for key, value in self._batches.items()]
        return {"counts": torch.from_numpy(self.counts), "batches": torch.tensor(batches).reshape(-1, 4)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore a ``state``."""
        self.counts[:] = state["counts"].numpy()
        self._batches = {(origin, index): (n, times) for origin, index, n, times in state["batches"].tolist()}
        sampled = Counter((n / len(self.counts), times) for n, times in self._batches.values())
        self.released = Released(int(self.counts.max(initial=0)), _sorted(sampled))

    def noise(self, kind: str, index: int, h: Tensor) -> Tensor:
        """Draw the noise for the bounded embeddings ``h``."""
        bits: np.random.BitGenerator
        if self._secret is not None:
            bits = np.random.Philox(key=int.from_bytes(os.urandom(_KEY_BYTES), "little"))
        else:
            bits = generator(self._seed, self._party, f"mechanism.{kind}/{index}").bit_generator
        return self.mechanism.noise(tuple(h.shape), h.dtype, bits).to(h.device)

    def inner_bits(self, layer: int, rows: str) -> np.random.BitGenerator:
        """Return the source of the noise at a layer inside the network for named ``rows``: the same each time."""
        purpose = f"mechanism.layer-{layer}/{rows}"
        if self._secret is None:
            return generator(self._seed, self._party, purpose).bit_generator
        digest = blake2b(purpose.encode(), key=self._secret, digest_size=_KEY_BYTES).digest()
        return np.random.Philox(key=int.from_bytes(digest, "little"))

    def count(self, rows: Rows, batch: BatchKey | None) -> str | None:
        """Count one more release, or return why not: the budget that it exceeds; "" for the limit of ``end_at``."""
        after, key, entry = self._after(rows, batch)
        if self._limit is not None and self.mechanism.spent(after) > self._limit[0] * WITHIN:
            return ""
        if what := self.mechanism.exceeded(after):
            row = int(np.arange(len(self.counts))[rows][np.argmax(self.counts[rows])])
            return what.format(row=row)
        self.counts[rows] += 1
        self.times += 1
        self.released, self._batches[key] = after, entry
        if self.told is not None:
            self.told(rows, batch)
        return None

    def end(self) -> None:
        """Do what ``end_at`` has asked for."""
        assert self._limit is not None, "a limit was reached"
        self._limit[1]()

    def _after(self, rows: Rows, batch: BatchKey | None) -> tuple[Released, BatchKey, tuple[int, int]]:
        """Return what has been released with one release more, and the batch's entry."""
        counts = self.counts[rows]
        most = max(self.released.most, int(counts.max(initial=-1)) + 1)
        # Rows that are no batch count as a sample of all rows, which claims nothing.
        key = (_ALL, len(self._batches)) if batch is None else batch
        size, times = self._batches.get(key, (len(self.counts) if batch is None else len(counts), 0))
        sampled = Counter({(rate, n): number for rate, n, number in self.released.sampled})
        rate = size / len(self.counts)
        if times:
            sampled[rate, times] -= 1
        sampled[rate, times + 1] += 1
        return Released(most, _sorted(sampled)), key, (size, times + 1)


class OneRelease:
    """One release of some rows: called with their bounded embeddings, it gives them noise and detaches them.

    It counts when the party has computed the embeddings in virtual time (``commit``), or when it is called, if that
    comes first. If neither happens, nothing is released.
    """

    __slots__ = ("_batch", "_counted", "_index", "_kind", "_of", "_refused", "_rows")

    def __init__(self, of: Releases, kind: str, index: int, rows: Rows, batch: BatchKey | None) -> None:
        self._of, self._kind, self._index, self._rows, self._batch = of, kind, index, rows, batch
        self._counted = False
        self._refused: str | None = None

    def commit(self) -> None:
        """Count the release; end the run instead if it would exceed the limit of ``end_at``."""
        self._count()
        if self._refused == "":
            self._of.end()

    def __call__(self, h: Tensor) -> Tensor:
        """Release ``h``, (rows, width). Raises ``BudgetError``."""
        self._count()
        if self._refused:
            remedy = "raise the mechanism's releases or rounds, which adds noise, or end the run earlier (stop.epsilon)"
            raise BudgetError(self._refused, remedy=remedy)
        return h.detach() + self._of.noise(self._kind, self._index, h)

    def _count(self) -> None:
        if not self._counted:
            self._counted, self._refused = True, self._of.count(self._rows, self._batch)


_ALL = -2
"""The origin of releases of rows that are no batch: no party's number."""


def _sorted(sampled: Counter[tuple[float, int]]) -> tuple[tuple[float, int, int], ...]:
    return tuple(sorted((rate, times, number) for (rate, times), number in sampled.items() if number))
