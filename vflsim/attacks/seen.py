"""An attacker's views of a party's features, one by one and together, of the last or of all epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vflsim.attacks.probing import numbers
from vflsim.results.store.views import PartyView
from vflsim.timing.floats import Floats

Epochs: TypeAlias = Literal["last", "all"]
EVERYTHING = "everything"
"""The name of all real views of an attacker, side by side."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What ``attacker`` (a party) has received in one of its views, or in all of them: ``name``."""

    attacker: str
    name: str
    views: tuple[PartyView, ...]
    received: NDArray[np.bool_]

    @property
    def path(self) -> str:
        """The key of the attack's random numbers."""
        return self.views[0].path if self.name != EVERYTHING else f"{self.attacker}/{EVERYTHING}"

    def inputs(self, epochs: Epochs) -> Floats | None:
        """Return numbers about every recorded row, (recorded rows, inputs), NaN where nothing has arrived.

        The arrivals of ``all`` epochs stand side by side, by their number; None if the run has kept the last alone.
        """
        parts = [_last(view) if epochs == "last" else _all(view) for view in self.views]
        found = [part for part in parts if part is not None]
        return np.hstack(found) if len(found) == len(parts) else None


def _last(view: PartyView) -> Floats:
    x = np.array(numbers(view.values))
    x[~view.received] = np.nan
    return x


def _all(view: PartyView) -> Floats | None:
    if view.arrivals is None:
        return None
    x, number = numbers(view.arrivals.values), view.arrivals.number
    table = np.full((len(view.received), number.max() + 1, x.shape[1]), np.nan)
    table[view.arrivals.row, number] = x
    return table.reshape(len(table), -1)


def seen_of(views: Collection[PartyView], party: str, attacker: str) -> Iterator[Seen]:
    """Yield the attacker's views that depend on the features of ``party`` one by one, and then all together.

    The server has the party's own messages, and what it computes from all clients' messages. A client has the party's
    messages to it, what others pass on under the party's name, and all else that comes from the server, which depends
    on every party: gradients, too. Everything is all real tensors that the attacker has, those about others as well:
    features of different parties resemble each other.
    """
    own = [view for view in views if view.receiver == attacker]
    about = [view for view in own if _about(view, party, attacker)]
    for view in about:
        named = "" if view.name == party else view.name
        name = "/".join(filter(None, ("derived " * view.derived + view.kind, named)))
        yield Seen(attacker, name, (view,), view.received)
    real = tuple(view for view in own if view.values.dtype.is_floating_point)
    if about and len(real) > 1:
        yield Seen(attacker, EVERYTHING, real, np.any([view.received for view in about], axis=0))


def _about(view: PartyView, party: str, attacker: str) -> bool:
    if party in (view.sender, view.name):
        return not _of_a_party(view.name) or view.name == party
    return not _of_a_party(view.name) and (view.derived or (attacker != "server" and view.sender == "server"))


def _of_a_party(name: str) -> bool:
    """Return whether a tensor is one party's, passed on or computed under its name."""
    return name == "server" or name.startswith("client-")
