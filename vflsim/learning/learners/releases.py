"""A client's release of an embedding: bounded, noisy, counted, and blinded by keys and masks."""

from __future__ import annotations

from vflsim.errors import BlindingError, NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.privacy.blinding import BlindedSum, Masks, mask_operations, private_key, shared_secret
from vflsim.learning.privacy.releases import OneRelease, Releases, Rows
from vflsim.learning.states import State, under
from vflsim.vocabulary.on_demand import Tensor, torch

RUNAWAY = 100
"""An embedding that outgrows the fixed point diverges if its largest element is more times that of the first one."""


class Blinder:
    """Blinds the embeddings of client ``party`` in a ``group`` of clients.

    Its private key follows from ``seed``, unless it ``has`` another one. It keeps the public keys through crashes, as
    it keeps its weights. A mask serves once: a client that redoes a message, after a crash, uploads the same integers
    again, and never goes back to an earlier one.
    """

    def __init__(self, group: BlindedSum, seed: int, party: int) -> None:
        self.group, self.party = group, party
        self.vouched: dict[int, bytes] | None = None
        """The public keys that their owners have vouched for; None where whoever relays keys is trusted."""
        self.agreed = False
        """Whether it has received the public keys, in virtual time."""
        self._seed = seed
        self._private: bytes | None = None
        self._public: Tensor | None = None
        self._masks: Masks | None = None
        self._sent: dict[str, tuple[int, Tensor]] = {}
        self._first: dict[str, float] = {}

    @property
    def private(self) -> bytes:
        """The private key, 32 bytes."""
        return private_key(self._seed, self.party) if self._private is None else self._private

    def has(self, private: bytes) -> None:
        """Have a private key of its own, 32 bytes, in place of the one that follows from the public seed."""
        self._private = private

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
        self.has(secrets["private"].numpy().tobytes())
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

    A ``blinder`` then blinds those of a batch.

    The noise takes its place in the party's sequence at the first call of ``begin``, or of the release itself.
    ``commit`` counts the release when the party has computed the embeddings in virtual time.
    """

    __slots__ = ("_blinder", "_kind", "_present", "_releases", "_rows", "_through")

    def __init__(
        self, releases: Releases | None, kind: str, rows: Batch | Rows, blinder: Blinder | None = None
    ) -> None:
        self._releases, self._kind, self._rows, self._blinder = releases, kind, rows, blinder
        self._present: Tensor | None = None
        self._through: OneRelease | None = None

    def of_those(self, present: Tensor | None) -> Release:
        """Put zeros in the place of rows that are not ``present``, (rows of the split, 1) of bool; None: all are."""
        self._present = present
        return self

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
        if self._releases is not None and self._through is None:
            if isinstance(self._rows, Batch):
                batch = self._rows
                self._through = self._releases.begin(self._kind, batch.ids, (batch.origin, batch.index))
            else:
                self._through = self._releases.begin(self._kind, self._rows)

    def commit(self) -> None:
        """Count the release: the party has computed the embeddings."""
        self.begin()
        if self._through is not None:
            self._through.commit()

    def __call__(self, h: Tensor) -> Tensor:
        """Release ``h``, (rows, width), detached. Raises ``BudgetError`` and ``BlindingError``."""
        self.begin()
        h = h.detach() if self._through is None else self._through(h)
        if self._present is not None:
            rows = self._rows.tensor(h.device) if isinstance(self._rows, Batch) else self._rows
            h = h.masked_fill(~self._present[rows], 0.0)
        if self._blinder is None:
            return h
        assert isinstance(self._rows, Batch), "only embeddings of a batch are blinded"
        return self._blinder.blinded(self._kind, self._rows, h)


AS_THEY_ARE = Release(None, "", slice(None))
"""The release of embeddings that others see as they are: it remembers nothing, so one serves all."""
