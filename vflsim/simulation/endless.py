"""Stop a run that cannot end, because what its stop rules wait for is never counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from vflsim.errors import NoProgressError
from vflsim.learning.execution.operations import Operation
from vflsim.learning.privacy.releases import Releases
from vflsim.simulation.build import Parties
from vflsim.stopping.end_rule import EndRule
from vflsim.streams import SERVER, few

SERVER_COMPUTATIONS = 10_000
SERVER_COMPUTATIONS_A_CLIENT = 1_000
"""Computations of the server without a round: local steps of its own, and a pass over the messages of each client."""
CLIENT_COMPUTATIONS = 10_000
"""Computations of each client without an update, or a release: many passes over all its rows."""
COMPUTATIONS_OF_ALL = 100_000
"""Computations of each party without what only others could count: local training, while the server waits."""

_REMEDIES = {
    "round": 'make the server\'s operation that ends a round with counts="round"',
    "update": 'make the clients\' operation that steps with counts="update"',
    "release": "give release.begin and release.commit of `self.release(…)` to the operation that uploads",
}
"""For each thing that can be counted: how a protocol has it counted."""


class EndlessRule:
    """Ends a run with an error when nothing that its stop rules wait for has been counted for very long.

    A run ends by any of its rules, so the error comes when all of them wait in vain. Computations of kind ``evaluate``
    are not counted. With a rule by time there is nothing to watch.
    """

    def __init__(self, parties: Parties, rules: Sequence[EndRule], unit: str, releases: list[Releases]) -> None:
        recorder, clients = parties.shared.recorder, max(1, len(parties.clients))
        self._protocol = type(parties.protocol).__name__
        patient = COMPUTATIONS_OF_ALL * (clients + 1)
        by_server = SERVER_COMPUTATIONS + SERVER_COMPUTATIONS_A_CLIENT * clients
        by_clients = CLIENT_COMPUTATIONS * clients
        known = {
            "round": _Awaited("round", attrgetter("current_round"), recorder, True, by_server, patient),
            "update": _Awaited("update", attrgetter("updates"), recorder, False, by_clients, patient),
            "release": _Awaited("release", _released, releases, False, by_clients, patient),
        }
        wanted, self._rules = awaited_by(rules, unit), rules
        self._awaited = [each for what, each in known.items() if what in wanted]
        self.needed = bool(wanted) and not any(rule.by == "time" for rule in rules)
        """Whether only counted things end the run."""

    def add(self, operation: Operation[Any]) -> None:
        """Note a computation. Raises ``NoProgressError`` when the run cannot end."""
        if operation.kind == "evaluate":
            return
        in_vain = True
        for each in self._awaited:
            if not each.add(operation):
                in_vain = False
        if in_vain:
            raise self._error()

    def _error(self) -> NoProgressError:
        rules = ", ".join(rule.key for rule in self._rules)
        return NoProgressError(
            f"stop: {rules} cannot end this run of {self._protocol}: " + "; ".join(map(str, self._awaited)),
            allowed="; ".join(each.allowed for each in self._awaited),
            remedy="; ".join(_REMEDIES[each.what] for each in self._awaited)
            + ", or add a limit, such as `stop: {time: 600 s}`",
        )


def awaited_by(rules: Sequence[EndRule], unit: str) -> set[str]:
    """Return what has to be counted for these rules, any of which may end a run; ``unit`` is that of evaluations."""
    steps = {"round", "update"}
    rows = steps if unit == "seconds" else {unit.removesuffix("s")}
    counted = {"step": steps, "row": rows, "time": set[str]()}
    return set[str]().union(*(counted.get(rule.by, {rule.by}) for rule in rules))


def _released(releases: list[Releases]) -> int:
    return sum(each.times for each in releases)


class _Awaited:
    """The computations since the latest round, update or release: of those who could count it, and of all.

    ``count(counted)`` says how many there have been.
    """

    def __init__(
        self, what: str, count: Callable[[Any], int], counted: object, by_server: bool, patience: int, of_all: int
    ) -> None:
        self.what, self._count, self._counted, self._by_server = what, count, counted, by_server
        self._patience, self._of_all = patience, of_all
        self._seen = count(counted)
        self._own = self._all = 0
        self._kinds: dict[str, None] = {}

    def add(self, operation: Operation[Any]) -> bool:
        """Note a computation; return whether there have been too many."""
        counter = self._count
        count = counter(self._counted)
        if count != self._seen:
            self._seen, self._own, self._all = count, 0, 0
            self._kinds.clear()
            return False
        self._all += 1
        if (operation.party == SERVER) is self._by_server:
            self._own += 1
            self._kinds[operation.kind] = None
        return self._own > self._patience or self._all > self._of_all

    @property
    def allowed(self) -> str:
        """How many computations there may be, in words."""
        who = "the server" if self._by_server else "all clients"
        return f"a {self.what} within {self._patience:,} computations of {who}, and {self._of_all:,} of all parties"

    def __str__(self) -> str:
        who = "the server" if self._by_server else "the clients"
        did = f" ({few(list(self._kinds))})" if self._kinds else ""
        after = f"since {self.what} {self._seen:,}" if self._seen else "from the start"
        return (
            f"no {self.what} was counted in {self._own:,} computations of {who}{did} and {self._all:,} of all {after}"
        )
