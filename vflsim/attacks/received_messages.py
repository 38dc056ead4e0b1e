"""What attackers have received about a party, as numbers: views, their epochs, and directions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vflsim.attacks.base import AttackedRun
from vflsim.attacks.probes import numbers
from vflsim.finished import PartyView
from vflsim.protocol import Floats

Epochs: TypeAlias = Literal["last", "all"]
Form: TypeAlias = Literal["values", "directions", "means", "differences"]
EVERYTHING = "everything"
"""The name of all real views of an attacker, side by side."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What ``attacker`` has received in views of one ``name``, or in all of them; ``received`` is about which rows."""

    attacker: str
    name: str
    views: tuple[PartyView, ...]
    received: NDArray[np.bool_]

    def epochs(self, wished: Sequence[Epochs]) -> Sequence[Epochs]:
        """Return the wished epochs, or the last, if these were not kept."""
        kept = all(view.arrivals is not None for view in self.views)
        return wished if kept else ("last",)

    def inputs(self, epochs: Epochs, form: Form | Literal["units"] = "values") -> Floats | None:
        """Return numbers about every recorded row, (recorded rows, inputs), NaN where nothing has arrived.

        The arrivals of ``all`` epochs stand side by side, by their number. ``units`` has each arrival as a vector of
        length 1, ``directions`` the logarithm of its length, too, ``means`` the mean over all arrivals, and
        ``differences`` the first arrival and how each other differs from the one before. None if the run has kept the
        last alone, for all but values of integers, and for means and differences of one epoch.
        """
        parts = [_read(view, epochs, form) for view in self.views]
        there = [part for part in parts if part is not None]
        return np.hstack(there) if len(there) == len(parts) else None


def remark_on_epochs(attacked: AttackedRun, wished: Sequence[Epochs]) -> None:
    """Say that the run has not kept all epochs, where they are wished, or that nothing has arrived."""
    views = attacked.run.views().views
    if not views:
        attacked.remarks.append("no message about a recorded row has arrived")
    elif "all" in wished and not any(view.arrivals for view in views):
        attacked.remarks.append("all epochs: only the last was kept (record: {views: {rows: 512, keep: all}})")


def _read(view: PartyView, epochs: Epochs, form: str) -> Floats | None:
    if form != "values" and not view.values.dtype.is_floating_point:
        return None
    if form == "means":
        return None if epochs == "last" or view.arrivals is None else _means(view, numbers(view.arrivals.values))
    if epochs == "last":
        table = np.array(numbers(view.values))[:, None]
        table[~view.received] = np.nan
    elif view.arrivals is None:
        return None
    else:
        x, number = numbers(view.arrivals.values), view.arrivals.number
        table = np.full((len(view.received), number.max() + 1, x.shape[1]), np.nan)
        table[view.arrivals.row, number] = x
    if form == "differences":
        if table.shape[1] < 2:
            return None
        table[:, 1:] = np.diff(table, axis=1)
    elif form != "values":
        table = directed(table)[..., : -1 if form == "units" else None]
    return table.reshape(len(table), -1)


def _means(view: PartyView, x: Floats) -> Floats | None:
    """Return the mean of all arrivals about each row, in which noise of single messages cancels out.

    None if nothing has arrived twice: the mean is the value then.
    """
    assert view.arrivals is not None, "all epochs are kept"
    count = np.bincount(view.arrivals.row, minlength=len(view.received))
    if count.max() < 2:
        return None
    total = np.zeros((len(count), x.shape[1]))
    np.add.at(total, view.arrivals.row, x)
    return np.divide(total, count[:, None], out=np.full_like(total, np.nan), where=count[:, None] > 0)


def directed(table: Floats) -> Floats:
    """Return vectors (rows, epochs, width) as those of length 1 and the logarithms of their lengths side by side.

    A gradient's direction tells more than the gradient: lengths differ by orders of magnitude from row to row, and
    hide it from regressions.
    """
    length = np.linalg.norm(table, axis=-1, keepdims=True)
    some = length > 0
    unit = np.divide(table, length, out=np.where(np.isnan(table), np.nan, 0.0), where=some)
    logarithm = np.log(length, out=np.full_like(length, np.nan), where=some)
    return np.concatenate([unit, logarithm], axis=-1)


def seen_of(views: Collection[PartyView], party: str, attacker: str, members: Collection[str] = ()) -> Iterator[Seen]:
    """Yield the attacker's views that depend on the features of ``party`` one by one, and then all together.

    Views of one name of several ``members`` of an attacker count as one. The server has the party's own messages, and
    what it computes from all clients' messages. A client has the party's messages to it, what others pass on under the
    party's name, and all else that comes from the server, which depends on every party: gradients, too. Everything is
    all real tensors that the attacker has, those about others as well: features of different parties resemble each
    other.
    """
    holders = members or (attacker,)
    held = [view for view in views if view.receiver in holders]
    about = [view for view in held if _about(view, party)]
    groups: dict[str, list[PartyView]] = {}
    for view in about:
        named = "" if view.name == party else view.name
        name = "/".join(filter(None, ("derived " * view.derived + view.kind, named)))
        groups.setdefault(name, []).append(view)
    for name, together in groups.items():
        yield Seen(attacker, name, tuple(together), _any(together))
    real = tuple(view for view in held if view.values.dtype.is_floating_point)
    if about and len(real) > max(map(len, groups.values())):
        yield Seen(attacker, EVERYTHING, real, _any(about))


def _any(views: Collection[PartyView]) -> NDArray[np.bool_]:
    received: NDArray[np.bool_] = np.any([view.received for view in views], axis=0)
    return received


def _about(view: PartyView, party: str) -> bool:
    if party in (view.sender, view.name):
        return not _of_a_party(view.name) or view.name == party
    from_server = view.receiver != "server" and view.sender == "server"
    return not _of_a_party(view.name) and (view.derived or from_server)


def _of_a_party(name: str) -> bool:
    """Return whether a tensor is one party's, passed on or computed under its name."""
    return name == "server" or name.startswith("client-")
