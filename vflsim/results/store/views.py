"""Views on disk: what every party of a run received about the recorded training rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflsim.results.store.pages import damaged, read_tensors
from vflsim.world.wire import DERIVED, ROWS


@dataclass(frozen=True, slots=True)
class Arrivals:
    """All that arrived in a view, in the order of arrival.

    ``values`` are (arrivals, …), ``row`` says about which of the recorded rows an arrival is, as its place among them,
    and ``time_s`` when it arrived (s): (arrivals,) each.
    """

    values: Tensor
    row: NDArray[np.int64]
    time_s: NDArray[np.float64]

    @property
    def number(self) -> NDArray[np.int64]:
        """How many arrivals about the same row there were before each, (arrivals,): mostly its epoch, from 0."""
        order = np.argsort(self.row, kind="stable")
        counts = np.bincount(self.row)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        return number


@dataclass(frozen=True, slots=True)
class PartyView:
    """What ``receiver`` last received from ``sender`` in tensor ``name`` (mostly empty) of messages of ``kind``.

    ``values`` are (recorded rows, …), as they arrived, and ``time_s`` the arrival times (s). A row that never arrived
    has the time NaN, and NaN or, in integers, 0 for values. ``mixed`` lists the training rows that each row of the
    tensor mixes, where it mixes several: (recorded rows, n), −1 for none. The receiver has computed a ``derived`` view
    from messages. ``arrivals`` are all that ever arrived, if the run has kept them.
    """

    receiver: str
    sender: str
    kind: str
    name: str
    values: Tensor
    time_s: NDArray[np.float64]
    mixed: NDArray[np.int64] | None = None
    arrivals: Arrivals | None = None

    @property
    def derived(self) -> bool:
        """Whether the receiver has computed it from messages."""
        return self.sender == DERIVED

    @property
    def received(self) -> NDArray[np.bool_]:
        """Which of the recorded rows have arrived, (recorded rows,)."""
        return ~np.isnan(self.time_s)

    @property
    def path(self) -> str:
        """Return ``receiver/sender/kind``, with ``/name`` if the tensor has one."""
        return "/".join(filter(None, (self.receiver, self.sender, self.kind, self.name)))


@dataclass(frozen=True, slots=True)
class RecordedViews:
    """All views of a run, by receiver, sender, kind and name; ``rows`` are the recorded training rows, ascending."""

    rows: NDArray[np.int64]
    views: tuple[PartyView, ...]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> RecordedViews:
        """Sort the tensors of ``world.wire.Views.state`` into views. Raises ValueError and LookupError."""
        paths = dict.fromkeys(key.rpartition(":")[0] for key in sorted(tensors) if key != ROWS)
        return cls(tensors[ROWS].numpy(), tuple(_view(path, tensors) for path in paths))

    @classmethod
    def read(cls, path: Path) -> RecordedViews:
        """Read a file. Raises ResultsError if it is damaged."""
        try:
            return cls.of(read_tensors(path))
        except (ValueError, LookupError) as error:
            raise damaged(path, str(error)) from error

    def of_receiver(self, party: str) -> tuple[PartyView, ...]:
        """Return the views of one party: ``server`` or ``client-<m>``."""
        return tuple(view for view in self.views if view.receiver == party)

    def __iter__(self) -> Iterator[PartyView]:
        return iter(self.views)


def _view(path: str, tensors: Mapping[str, Tensor]) -> PartyView:
    receiver, sender, kind, *name = path.split("/", 3)
    values, mixed, time_s = tensors[f"{path}:values"], tensors.get(f"{path}:mixed"), tensors[f"{path}:time_s"]
    arrivals = None
    if (row := tensors.get(f"{path}:row")) is not None:
        arrivals, rows = Arrivals(values, row.numpy(), time_s.numpy()), len(tensors[ROWS])
        values, time_s = _latest(values, arrivals.row, rows), _latest(time_s, arrivals.row, rows)
        mixed = None if mixed is None else _latest(mixed, arrivals.row, rows, -1)
    numbers = None if mixed is None else mixed.numpy()
    return PartyView(receiver, sender, kind, "/".join(name), values, time_s.numpy(), numbers, arrivals)


def _latest(arrived: Tensor, row: NDArray[np.int64], rows: int, missing: int = 0) -> Tensor:
    """Return the last arrival of each recorded row; NaN, or ``missing`` in integers, where there is none."""
    last = np.full(rows, -1)
    last[row] = np.arange(len(row))  # of several about a row the last stays
    there = torch.from_numpy(last >= 0)
    empty = float("nan") if arrived.dtype.is_floating_point else missing
    latest = torch.full((rows, *arrived.shape[1:]), empty, dtype=arrived.dtype)
    latest[there] = arrived[torch.from_numpy(last[last >= 0])]
    return latest
