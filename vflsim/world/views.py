"""Views: what each party really receives about chosen training rows, for the attacks of curious parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflsim.codecs.frame import ONLY
from vflsim.learning.batches import BatchSequence
from vflsim.learning.execution.operations import Executor, Handle, Operation
from vflsim.learning.learners.inputs import KeptValue
from vflsim.streams import SHARED, generator, party_name
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.messages import Message

ROWS = "rows"
"""The name of the tensor with the recorded rows."""
DERIVED = "derived"
"""In place of a sender: the receiver has computed it from messages."""


def chosen_rows(rows: int, count: int, seed: int) -> NDArray[np.int64]:
    """Choose ``count`` of ``rows`` training rows (all, if there are fewer), ascending: equal for all protocols."""
    chosen = generator(seed, SHARED, "views").choice(rows, min(count, rows), replace=False)
    return np.sort(chosen).astype(np.int64)


@dataclass(slots=True)
class Views:
    """The tensor rows that each party has received about the training rows ``rows``: the latest, or all of them.

    There is a view for every (receiver, sender, message kind, tensor name). ``values`` are (recorded rows, …) as they
    arrived: after codec, noise and blinding. ``time_s`` is when they arrived (s); NaN marks a row that never did, whose
    values are NaN, or 0 for integers. Where a tensor row mixes several training rows, ``mixed`` lists them (−1: none).
    With ``everything``, the fields have an entry for each arrival of a row instead, in the order of arrival, and
    ``row`` (arrivals,) is its place among the recorded rows.

    Invariants: rows are copied by operations of the executor that nothing waits for and that count for no memory, so
    that recording changes no other result; a view is independent of when they run. ``batches`` has the mini-batches of
    every client: a message without a batch is about the batch of its round.
    """

    rows: NDArray[np.int64]
    executor: Executor
    now: Callable[[], float]
    batches: Mapping[int, BatchSequence]
    everything: bool = False
    _place: NDArray[np.int64] = field(init=False)
    _latest: dict[str, Tensor] = field(default_factory=dict, init=False)
    _arrived: dict[str, list[Tensor]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._place = np.full(int(self.rows.max()) + 2, -1)
        self._place[self.rows] = np.arange(len(self.rows))

    def received(self, message: Message) -> None:
        """Keep what a message that has just arrived holds about the recorded rows."""
        batches = self.batches[message.sender or message.receiver]
        for name, handle in message.carried.items():
            rows = message.rows_of(name, batches)
            if rows is not None:
                view = f"{party_name(message.receiver)}/{party_name(message.sender)}/{message.kind}"
                self._keep(view, name, rows, (handle,))

    def derive(
        self,
        party: int,
        kind: str,
        rows: NDArray[np.int64],
        inputs: Sequence[Handle[Any]],
        compute: Callable[[], Tensor] | None = None,
        name: str = ONLY,
    ) -> None:
        """Keep what ``party`` can compute from the ``inputs``, a row for each of ``rows``; by default the first."""
        self._keep(f"{party_name(party)}/{DERIVED}/{kind}", name, rows, inputs, compute)

    def state(self) -> dict[str, Tensor]:
        """Return all views as tensors by name: ``receiver/sender/kind[/name]:field``, and the recorded rows."""
        self._arrived = {name: [torch.cat(parts)] for name, parts in self._arrived.items()}
        arrived = {name: whole for name, (whole,) in self._arrived.items()}
        return {ROWS: torch.from_numpy(self.rows), **self._latest, **arrived}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        tensors = {name: tensor.clone() for name, tensor in state.items() if name != ROWS}
        self._latest = {} if self.everything else tensors
        self._arrived = {name: [tensor] for name, tensor in tensors.items()} if self.everything else {}

    def _keep(
        self,
        view: str,
        name: str,
        rows: NDArray[np.int64],
        inputs: Sequence[Handle[Any]],
        compute: Callable[[], Tensor] | None = None,
    ) -> None:
        view = f"{view}/{name}" if name != ONLY else view
        places = self._place[np.minimum(rows, len(self._place) - 1)]  # −1 and rows beyond the last recorded: none
        at, *column = np.nonzero(places >= 0)
        if not len(at):
            return
        into, now = torch.from_numpy(places[(at, *column)]), self.now()
        mixed = torch.from_numpy(rows[at]) if rows.ndim > 1 else None

        def run() -> None:
            value = inputs[0].value if compute is None else compute()
            values = value.rows_at(at) if isinstance(value, KeptValue) else value[torch.from_numpy(at)]
            if values is None:
                return
            fields = {"values": values.detach().cpu(), "time_s": torch.full((len(into),), now, dtype=torch.float64)}
            fields |= {} if mixed is None else {"mixed": mixed}
            if self.everything:
                for name, each in {**fields, "row": into}.items():
                    self._arrived.setdefault(f"{view}:{name}", []).append(each)
            else:
                for name, each in fields.items():
                    self._field(view, name, each)[into] = each

        self.executor.submit(Operation("view", SHARED, run, None, inputs=inputs, looks_on=True))

    def _field(self, view: str, name: str, like: Tensor) -> Tensor:
        """Return the tensor of all recorded rows for rows ``like`` these."""
        key = f"{view}:{name}"
        if key not in self._latest:
            missing = float("nan") if like.dtype.is_floating_point else -1 if name == "mixed" else 0
            self._latest[key] = torch.full((len(self.rows), *like.shape[1:]), missing, dtype=like.dtype)
        return self._latest[key]
