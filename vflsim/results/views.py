"""Views on disk: what every party of a run received about the recorded training rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from vflsim.files import content
from vflsim.results.pages import damaged
from vflsim.world.views import DERIVED, ROWS


@dataclass(frozen=True, slots=True)
class PartyView:
    """What ``receiver`` last received from ``sender`` in tensor ``name`` (mostly empty) of messages of ``kind``.

    ``values`` are (recorded rows, …), as they arrived, and ``time_s`` the arrival times (s). A row that never arrived
    has the time NaN, and NaN or, in integers, 0 for values. ``mixed`` lists the training rows that each row of the
    tensor mixes, where it mixes several: (recorded rows, n), −1 for none. The receiver has computed a ``derived`` view
    from messages.
    """

    receiver: str
    sender: str
    kind: str
    name: str
    values: Tensor
    time_s: NDArray[np.float64]
    mixed: NDArray[np.int64] | None = None

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
        """Sort the tensors of ``world.views.Views.state`` into views. Raises ValueError and LookupError."""
        paths = dict.fromkeys(key.rpartition(":")[0] for key in sorted(tensors) if key != ROWS)
        return cls(tensors[ROWS].numpy(), tuple(_view(path, tensors) for path in paths))

    @classmethod
    def read(cls, path: Path) -> RecordedViews:
        """Read a file. Raises ResultsError if it is damaged."""
        try:
            return cls.of(load(content(path)))
        except (SafetensorError, OSError, ValueError, LookupError) as error:
            raise damaged(path, str(error)) from error

    def of_receiver(self, party: str) -> tuple[PartyView, ...]:
        """Return the views of one party: ``server`` or ``client-<m>``."""
        return tuple(view for view in self.views if view.receiver == party)

    def __iter__(self) -> Iterator[PartyView]:
        return iter(self.views)


def _view(path: str, tensors: Mapping[str, Tensor]) -> PartyView:
    receiver, sender, kind, *name = path.split("/", 3)
    values, mixed = tensors[f"{path}:values"], tensors.get(f"{path}:mixed")
    time_s = tensors[f"{path}:time_s"].numpy()
    return PartyView(receiver, sender, kind, "/".join(name), values, time_s, None if mixed is None else mixed.numpy())
