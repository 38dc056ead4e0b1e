"""A party's side of blinding: its keys, its masks, and what it has uploaded last."""

from __future__ import annotations

import torch
from torch import Tensor

from vflsim.errors import BlindingError, NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.privacy.blinding import BlindedSum
from vflsim.learning.privacy.blinding.keys import private_key, shared_secret
from vflsim.learning.privacy.blinding.masks import Masks, operations
from vflsim.learning.states import State, under

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
        return operations(elements, self.group.blinding.bits, len(self.group.clients) - 1)

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
        held = {name: torch.frombuffer(bytearray(key), dtype=torch.uint8) for name, key in keys.items()}
        return held | {"agreed": torch.tensor(self.agreed)}

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
