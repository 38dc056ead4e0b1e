"""What clients have released under noise, as the server gets to know it: which rows, how often, and no values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vflsim.errors import ProtocolError
from vflsim.protocol import BatchSequence, Setting, party_name
from vflsim.remote.control import Control, ControlError, NoiseAdded
from vflsim.worlds import BatchKey, Releases, Rows

MOST_AHEAD = 1_000
"""By how many a client's releases may exceed its uploads and the rounds."""


class ReleaseCounts:
    """The releases of all clients of a run, as they tell them: so the server accounts for them as a simulation does."""

    def __init__(self, setting: Setting, seed: int, sequence: BatchSequence) -> None:
        mechanism, rows = setting.mechanism, setting.data.rows
        self._clients = (
            {} if mechanism is None else {each: Releases(mechanism, seed, each, rows) for each in setting.clients}
        )
        self._sequence, self._own = sequence, partial(BatchSequence, rows, setting.training, seed)

    @property
    def of_all(self) -> tuple[Releases, ...]:
        """The releases in client order; none without a mechanism."""
        return tuple(self._clients.values())

    def take(self, client: int, message: NoiseAdded, due: int) -> None:
        """Count a release: before an upload, or in a round that has gone on without one; so many are ``due`` by now.

        Raises ``ControlError`` for one that this run does not have.
        """
        if client not in self._clients:
            raise ControlError(f"{party_name(client)} has released under noise", allowed="a run with a mechanism")
        if self._clients[client].times >= (most := due + MOST_AHEAD):
            raise ControlError(f"{party_name(client)} has released more than {most} times", allowed="once an upload")
        if message.batch is None:
            self._clients[client].count(slice(None), None)
            return
        origin, index = message.batch
        sequences = {each.origin: each for each in (self._sequence, self._own(client))}
        if origin not in sequences:
            what = f"{party_name(client)} has released a batch of sequence {origin}"
            raise ControlError(what, allowed=f"sequence {' or '.join(map(str, sequences))}")
        self._clients[client].count(sequences[origin].batch(index).ids, message.batch)


def telling(send: Callable[[Control], None]) -> Callable[[Rows, BatchKey | None], None]:
    """Return what tells the server of a release.

    It raises ``ProtocolError`` for rows that are neither a batch nor all rows.
    """

    def tell(rows: Rows, batch: BatchKey | None) -> None:
        if batch is None and not (isinstance(rows, slice) and rows == slice(None)):
            what, allowed = "a release of some rows that are no mini-batch", "a mini-batch of the run, or all rows"
            raise ProtocolError(what, allowed=f"{allowed}, in a live run")
        send(NoiseAdded(batch=batch))

    return tell
