"""A client's releases of embeddings: bounded, noisy, counted for every sample, and blinded by keys and masks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import BlindingError, BudgetError, NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.privacy.accounting import WITHIN, Released
from vflsim.learning.privacy.base import Mechanism
from vflsim.learning.privacy.blinding import BlindedSum, Masks, mask_operations, private_key, shared_secret
from vflsim.learning.states import State, under
from vflsim.streams import generator
from vflsim.vocabulary.on_demand import Tensor, torch

Rows = NDArray[np.int64] | slice
"""Row numbers of the training split, each at most once, or all of them as a slice."""
BatchKey = tuple[int, int]
"""The origin and the index of a mini-batch."""
_KEY_BYTES = 16
"""The length of a Philox key."""
_SECRET_BYTES = 32
_REMEDY = "raise the mechanism's releases or rounds, which adds noise, or end the run earlier (stop.epsilon)"


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
        self.reporter: Callable[[Rows, BatchKey | None], None] | None = None
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

    def begin(self, kind: str, rows: Batch | Rows) -> Release:
        """Begin a release of ``kind``."""
        release = Release(self, kind, rows)
        release.begin()
        return release

    def next_index(self, kind: str) -> int:
        """Count a release of ``kind`` that begins; return how many had begun before."""
        self._begun[kind] += 1
        return self._begun[kind] - 1

    def state(self) -> dict[str, Tensor]:
        """Give the counts by name. The begun releases follow from the calls of ``begin``."""
        batches = torch.tensor([(*key, *value) for key, value in self._batches.items()])
        return {"counts": torch.from_numpy(self.counts), "batches": batches.reshape(-1, 4)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore a ``state``."""
        self.counts[:] = state["counts"].numpy()
        self._batches = {(origin, index): (n, times) for origin, index, n, times in state["batches"].tolist()}
        sampled = Counter((n / len(self.counts), times) for n, times in self._batches.values())
        self.released = Released(int(self.counts.max(initial=0)), _sorted(sampled))

    def noise(self, kind: str, index: int, h: Tensor) -> Tensor:
        """Draw the noise for the bounded embeddings ``h``."""
        bits = generator(self._seed, self._party, f"mechanism.{kind}/{index}").bit_generator
        if self._secret is not None:
            bits = np.random.Philox(key=int.from_bytes(os.urandom(_KEY_BYTES), "little"))
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
        if self.reporter is not None:
            self.reporter(rows, batch)
        return None

    def end(self) -> None:
        """Do what ``end_at`` has asked for."""
        assert self._limit is not None, "a limit was reached"
        self._limit[1]()

    def _after(self, rows: Rows, batch: BatchKey | None) -> tuple[Released, BatchKey, tuple[int, int]]:
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


_ALL = -2
"""The origin of releases of rows that are no batch: no party's number."""


def _sorted(sampled: Counter[tuple[float, int]]) -> tuple[tuple[float, int, int], ...]:
    return tuple(sorted((rate, times, number) for (rate, times), number in sampled.items() if number))


RUNAWAY = 100
"""An embedding that outgrows the fixed point diverges if its largest element is more times that of the first one."""


class Blinder:
    """Blinds the embeddings of client ``party`` in a ``group`` of clients.

    Its ``private`` key, 32 bytes, follows from ``seed`` unless it is given another one. It keeps the public keys in
    crashes, as it keeps its weights. A mask serves once: a client that redoes a message, after a crash, uploads the
    same integers again, and never goes back to an earlier one.
    """

    def __init__(self, group: BlindedSum, seed: int, party: int) -> None:
        self.group, self.party, self.private = group, party, private_key(seed, party)
        self.vouched: dict[int, bytes] | None = None
        """The public keys that their owners have vouched for; None where whoever relays keys is trusted."""
        self.agreed = False
        """Whether it has received the public keys, in virtual time."""
        self._seed = seed
        self._public: Tensor | None = None
        self._masks: Masks | None = None
        self._sent: dict[str, tuple[int, Tensor]] = {}
        self._first: dict[str, float] = {}

    def flops(self, elements: int) -> float:
        """Count the integer operations of blinding so many elements."""
        return mask_operations(elements, self.group.blinding.bits, len(self.group.clients) - 1)

    def agree(self, public: Tensor) -> None:
        """Take the public keys of all clients, (clients, 32) bytes in client order.

        Raises ``BlindingError`` for a key that is not the one that its owner has vouched for.
        """
        vouched = self.vouched
        for client, key in zip(self.group.clients, public, strict=True) if vouched is not None else ():
            if client != self.party and (vouched or {}).get(client) != key.numpy().tobytes():
                what = f"the public key of client {client} is not the one that it has signed"
                raise BlindingError(what, remedy="do not trust the server: it has put another key in its place")
        self._public, self._masks = public.clone(), None

    def blinded(self, kind: str, batch: Batch, h: Tensor) -> Tensor:
        """Return the upload for embeddings ``h`` of a shared ``batch``.

        Raises ``NonFiniteError`` for values of a client that diverges, and ``BlindingError`` for others that are too
        large, and for a batch before the latest one, whose mask has served.
        """
        number, sent = self._sent.get(kind, (-1, h))
        if batch.index < number:
            what = f"batch {batch.index} is to be blinded after batch {number}: its mask has served"
            remedy = "do not trust the server: under one mask, two uploads show their difference"
            raise BlindingError(what, remedy=remedy)
        if number != batch.index:
            self._check_growth(kind, float(h.abs().max()))
            mask = self._mask().of(kind, batch.index, h.numel())
            sent = self.group.masked(h, mask)
            self._sent[kind] = batch.index, sent
        return sent

    def state(self) -> dict[str, Tensor]:
        """Return the public keys; of each kind, the latest upload, and the magnitude of the first embedding."""
        state = {} if self._public is None else {"public": self._public}
        state |= {f"first.{kind}": torch.tensor(first, dtype=torch.float64) for kind, first in self._first.items()}
        for kind, (number, sent) in self._sent.items():
            state |= {f"number.{kind}": torch.tensor(number), f"sent.{kind}": sent}
        return state

    def load(self, state: State) -> None:
        """Restore what ``state`` returned."""
        self._masks = None
        self._public = state["public"].clone() if "public" in state else None
        self._first = {kind: float(first) for kind, first in under("first", state).items()}
        sent = under("sent", state)
        self._sent = {kind: (int(state[f"number.{kind}"]), upload.clone()) for kind, upload in sent.items()}

    def secrets(self) -> dict[str, Tensor]:
        """Return the private key, and the public keys for which their owners have vouched, by name."""
        keys = {"private": self.private} | {f"vouched.{who}": key for who, key in (self.vouched or {}).items()}
        secrets = {name: torch.frombuffer(bytearray(key), dtype=torch.uint8) for name, key in keys.items()}
        return secrets | {"agreed": torch.tensor(self.agreed)}

    def take_up(self, secrets: State) -> None:
        """Take up what ``secrets`` returned in another process. A run's public keys may have been loaded before."""
        self.private = secrets["private"].numpy().tobytes()
        self.vouched = {int(who): key.numpy().tobytes() for who, key in under("vouched", secrets).items()}
        self.agreed = bool(secrets["agreed"])
        self._masks = None

    def _check_growth(self, kind: str, magnitude: float) -> None:
        """Raise ``NonFiniteError`` where a float would take longer to overflow: beyond the range, and far grown."""
        first = self._first.setdefault(kind, magnitude)
        if magnitude > self.group.largest and magnitude > RUNAWAY * first:
            raise NonFiniteError(
                f"an embedding has grown from magnitude {first:g} to {magnitude:g}, out of the fixed point",
                allowed=f"magnitudes up to {self.group.largest:g}",
            )

    def _mask(self) -> Masks:
        if self._masks is None:
            assert self._public is not None, "the keys are agreed upon before the first embedding"
            private = self.private
            pairs = zip(self.group.clients, self._public, strict=True)
            secrets = {
                client: shared_secret(private, key.numpy().tobytes()) for client, key in pairs if client != self.party
            }
            run = f"{self.group.context}/{self._seed}"
            self._masks = Masks(self.party, secrets, self.group.blinding.bits, run)
        return self._masks


class Release:
    """One release of bounded embeddings of ``rows``: ``releases`` adds noise and counts it; None leaves them alone.

    A ``blinder`` then blinds those of a batch. ``present``, (rows of the split, 1) of bool, says which rows the client
    holds: zeros take the place of others. None: all.

    The noise takes its place in the party's sequence at the first call of ``begin``, or of the release itself. The
    release counts when the party has computed the embeddings in virtual time (``commit``), or when it is called, if
    that comes first. If neither happens, nothing is released.
    """

    __slots__ = ("_blinder", "_counted", "_index", "_kind", "_present", "_refused", "_releases", "_rows")

    def __init__(
        self,
        releases: Releases | None,
        kind: str,
        rows: Batch | Rows,
        blinder: Blinder | None = None,
        present: Tensor | None = None,
    ) -> None:
        self._releases, self._kind, self._rows, self._present = releases, kind, rows, present
        self._blinder = blinder if isinstance(rows, Batch) else None
        self._index: int | None = None
        self._counted = False
        self._refused: str | None = None

    @property
    def plain(self) -> bool:
        """Whether embeddings are released as they are."""
        return self._releases is None and self._blinder is None and self._present is None

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of what others see; None for that of the embeddings."""
        return None if self._blinder is None else self._blinder.group.uploaded

    def flops(self, elements: int) -> float:
        """Count what a release of so many elements costs beside the embedding: the masks."""
        return 0.0 if self._blinder is None else self._blinder.flops(elements)

    def begin(self) -> None:
        """Take the next noise: the party begins to compute the embeddings."""
        if self._releases is not None and self._index is None:
            self._index = self._releases.next_index(self._kind)

    def commit(self) -> None:
        """Count the release: the party has computed the embeddings. End the run instead at the limit of ``end_at``."""
        self.begin()
        if self._releases is not None:
            self._count(self._releases)
            if self._refused == "":
                self._releases.end()

    def __call__(self, h: Tensor) -> Tensor:
        """Release ``h``, (rows, width), detached. Raises ``BudgetError`` and ``BlindingError``."""
        self.begin()
        h = h.detach()
        if self._releases is not None and self._index is not None:
            self._count(self._releases)
            if self._refused:
                raise BudgetError(self._refused, remedy=_REMEDY)
            h = h + self._releases.noise(self._kind, self._index, h)
        if self._present is not None:
            rows = self._rows.tensor(h.device) if isinstance(self._rows, Batch) else self._rows
            h = h.masked_fill(~self._present[rows], 0.0)
        if self._blinder is None:
            return h
        assert isinstance(self._rows, Batch), "only embeddings of a batch are blinded"
        return self._blinder.blinded(self._kind, self._rows, h)

    def _count(self, releases: Releases) -> None:
        if not self._counted:
            if isinstance(batch := self._rows, Batch):
                refused = releases.count(batch.ids, (batch.origin, batch.index))
            else:
                refused = releases.count(batch, None)
            self._counted, self._refused = True, refused


AS_THEY_ARE = Release(None, "", slice(None))
"""The release of embeddings that others see as they are: it remembers nothing, so one serves all."""
