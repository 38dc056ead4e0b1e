"""What a run leaves behind: events, rounds and metrics, in columns."""

from __future__ import annotations

from array import array
from typing import Any

from vflsim.learning.operations import Handle
from vflsim.learning.staleness import StepFacts
from vflsim.world.messages import Message

OUTCOMES = ("done", "abandoned", "unfinished")


class Events:
    """The event table, one typed array a column: no Python object is kept per event.

    ``party`` and ``peer`` are party numbers (-1: none), ``kind`` and ``outcome`` codes into ``kinds`` and ``OUTCOMES``.
    """

    def __init__(self) -> None:
        self.start_s, self.end_s, self.drawn_s = array("d"), array("d"), array("d")
        self.party, self.kind, self.peer = array("i"), array("i"), array("i")
        self.round, self.bytes, self.index = array("q"), array("q"), array("q")
        self.outcome = array("b")
        self.kinds: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.start_s)

    def add(
        self, start: float, end: float, party: int, kind: str, round_: int, peer: int, size: int, index: int,
        drawn: float, outcome: str,
    ) -> None:  # fmt: skip
        """Append one row."""
        self.start_s.append(start)
        self.end_s.append(end)
        self.party.append(party)
        self.kind.append(self.kinds.setdefault(kind, len(self.kinds)))
        self.round.append(round_)
        self.peer.append(peer)
        self.bytes.append(size)
        self.index.append(index)
        self.drawn_s.append(drawn)
        self.outcome.append(OUTCOMES.index(outcome))


class _Ages:
    """Running mean and maximum of an age since the last metrics row."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.total, self.count, self.oldest = 0.0, 0, 0

    def add(self, total: float, count: int, oldest: int) -> None:
        self.total, self.count, self.oldest = self.total + total, self.count + count, max(self.oldest, oldest)

    def mean(self) -> float:
        return self.total / self.count if self.count else float("nan")

    def maximum(self) -> float:
        return float(self.oldest) if self.count else float("nan")


class Recorder:
    """Counts what happens and keeps as much of it as asked for: ``events``, ``rounds`` or only the ``summary``.

    Invariants: ``bytes_up + bytes_down + bytes_peer`` is the sum of ``bytes`` over the transfers that have ended;
    ``rounds`` is the number of server steps completed, ``updates`` that of client steps.
    """

    def __init__(self, keep: str = "events") -> None:
        self.keep = keep
        self.rounds = self.updates = self.embeddings_used = 0
        self.bytes_up = self.bytes_down = self.bytes_peer = 0
        self.events = Events()
        self.round_rows: dict[str, list[Any]] = {n: [] for n in ("round", "start_s", "end_s", "used", "missing")}
        self.metric_rows: list[dict[str, float]] = []
        self.extra: dict[str, list[dict[str, Any]]] = {}
        self._round_start = 0.0
        self._losses: list[Handle[float]] = []
        self._row_ages, self._client_ages = _Ages(), _Ages()

    def event(
        self, start: float, end: float, party: int, kind: str, round_: int, peer: int, size: int, index: int,
        drawn: float, outcome: str = "done",
    ) -> None:  # fmt: skip
        """Something a party did, from ``start`` to ``end``."""
        if self.keep == "events":
            self.events.add(start, end, party, kind, round_, peer, size, index, drawn, outcome)

    def transfer(self, message: Message, index: int, began: float, ended: float, sent: int, outcome: str) -> None:
        """A message has left its link: delivered, abandoned on the way, or still there when the run ended."""
        if message.sender and message.receiver:
            self.bytes_peer += sent
        elif message.sender:
            self.bytes_up += sent
        else:
            self.bytes_down += sent
        kind = f"transfer.{message.kind}"
        start = began if began == began else ended  # NaN: it never got to move
        self.event(
            start, ended, message.sender, kind, message.round, message.receiver, sent, index, float("nan"), outcome
        )

    def step(self, facts: StepFacts, now: float) -> None:
        """A server step is complete: one round."""
        if self.keep != "summary":
            rows = self.round_rows
            rows["round"].append(self.rounds)
            rows["start_s"].append(self._round_start)
            rows["end_s"].append(now)
            rows["used"].append(list(facts.used))
            rows["missing"].append(list(facts.missing))
        self._round_start = now
        self.rounds += 1
        self.embeddings_used += len(facts.used)
        if facts.loss is not None:
            self._losses.append(facts.loss)
        self._row_ages.add(*facts.row_ages)
        ages = facts.client_ages
        self._client_ages.add(sum(ages), len(ages), max(ages, default=0))

    def metrics(self, now: float, evaluated: dict[str, float]) -> dict[str, float]:
        """A row of metrics; losses and ages are over the steps since the row before (their handles must be ready)."""
        losses = [handle.value for handle in self._losses if handle.ready]
        row = {
            "time_s": now,
            "round": self.rounds,
            "updates": self.updates,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "bytes_peer": self.bytes_peer,
            "train_loss": sum(losses) / len(losses) if losses else float("nan"),
            **evaluated,
            "row_age_mean": self._row_ages.mean(),
            "row_age_max": self._row_ages.maximum(),
            "client_age_mean": self._client_ages.mean(),
            "client_age_max": self._client_ages.maximum(),
        }
        self._losses.clear()
        self._row_ages.clear()
        self._client_ages.clear()
        self.metric_rows.append(row)
        return row

    def recount(self) -> None:
        """Bring the bytes of the latest metrics row up to date: the run has ended, and so have its transfers."""
        row = self.metric_rows[-1]
        row |= {"bytes_up": self.bytes_up, "bytes_down": self.bytes_down, "bytes_peer": self.bytes_peer}

    def losses_pending(self) -> list[Handle[float]]:
        """Handles of the losses that the next metrics row will average."""
        return self._losses

    def add(self, what: str, fields: dict[str, Any]) -> None:
        """A row of a protocol's own table ``what``."""
        self.extra.setdefault(what, []).append(fields)
