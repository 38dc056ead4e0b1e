"""Messages of every client to each other client, round by round."""

from __future__ import annotations

import numpy as np

from vflsim.recurrences.chunk import Moves
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed_acts import PeerWay
from vflsim.timing.floats import Floats


class PeerMessages:
    """One message of every client to each other client in n rounds: ``ends`` are their arrivals, (n, S, M).

    They are kept for every sort of receivers (S) and every sender, as in ``PeerWay``. ``latency`` (n, S M) is drawn.
    """

    def __init__(self, way: PeerWay, kinds: Ints, latency: Floats) -> None:
        shape = len(kinds), *way.rates.shape
        self._way, self._kinds, self._seconds = way, kinds, way.seconds
        self._latency = latency.reshape(shape)
        self._began = np.empty(shape)
        self.ends = np.empty(shape)
        self._places = np.arange(len(way.sort))
        self._alone = bool((np.bincount(way.sort) == 1).all())
        self._sent: Floats | None = None
        self.latest = 0.0
        """The arrival of the last message of the latest round."""

    def send(self, k: int, kind: int, now: Floats) -> None:
        """Let every client send its messages of round k at ``now`` (M,)."""
        self._sent = now
        np.add(now, self._latency[k], out=self._began[k])
        np.add(self._began[k], self._seconds[kind], out=self.ends[k])

    def there(self, k: int, out: Floats) -> Floats:
        """Put into ``out`` (M,) when each client has sent its own messages of round k and has those of all others."""
        ends, sent = self.ends[k], self._sent
        assert sent is not None, "messages are sent before they are waited for"
        if len(ends) == 1:  # only the sender of the last message does not wait for it
            row = ends[0]
            last = int(row.argmax())
            self.latest = latest = float(row[last])
            row[last] = -np.inf
            others = np.maximum.reduce(row)
            row[last] = latest
            out.fill(latest)
            out[last] = max(others, sent[last])
            return out
        last_of = ends.argmax(axis=1)
        rows = np.arange(len(ends))
        latest_of = ends[rows, last_of]
        self.latest = float(latest_of.max())
        out[:] = latest_of[self._way.sort]
        if not self._alone:
            senders = np.flatnonzero(last_of[self._way.sort] == self._places)
            ends[rows, last_of] = -np.inf
            out[senders] = ends.max(axis=1)[self._way.sort[senders]]
            ends[rows, last_of] = latest_of
        return np.maximum(out, sent, out=out)

    def without(self, k: int, over: Floats) -> Ints:
        """Return the clients to whom a message of round k is still under way when its sender hears ``over`` (M,)."""
        cut = self.ends[k] > over
        lacking = cut.sum(axis=1)[self._way.sort] - cut[self._way.sort, self._places]
        return np.flatnonzero(lacking > 0)

    def ties(self, k: int, over: Floats) -> bool:
        """Return whether a message of round k arrives as its sender hears ``over`` (M,)."""
        return bool(((self.ends[k] == over) & (self._way.copies > 0)).any())

    def moves(self, over: Floats | None = None) -> Moves:
        """Return the transfers. ``over`` (n, M) ends those of a sender that are still under way."""
        way, ends = self._way, self.ends
        sizes = np.broadcast_to(way.sizes[self._kinds][:, None], ends.shape)
        counted = sizes * way.copies
        if over is not None and (late := ends > over[:, None]).any():
            until = np.broadcast_to(over[:, None], ends.shape)[late]
            rates, began = np.broadcast_to(way.rates, ends.shape)[late], self._began[late]
            lasted = np.maximum(0, until - began)
            bits = np.multiply(lasted, rates, where=lasted > 0, out=np.zeros_like(lasted))  # a rate may be infinite
            through = np.minimum(sizes[late], bits / 8)
            counted[late] = through.astype(np.int64) * np.broadcast_to(way.copies, ends.shape)[late]
            ends = np.where(late, over[:, None], ends)
        flat = len(ends), -1
        return Moves(
            "peer",
            self._began.reshape(flat),
            ends.reshape(flat),
            sizes.reshape(flat),
            counted.reshape(flat),
            way.rates.ravel(),
            way.copies.ravel(),
        )
