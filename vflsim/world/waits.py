"""Who waits for whom, and when that has become hopeless."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vflsim.errors import IncompleteRoundError
from vflsim.streams import few, party_name
from vflsim.world.mailbox import Wanted

if TYPE_CHECKING:
    from vflsim.world.node import Node


@dataclass(slots=True, eq=False)
class _Wait:
    """A receive that waits: ``node``'s; ``patient`` if it has a timeout; ``sender`` ends it by going down.

    ``forgoing``: whoever goes down is no longer waited for.
    """

    node: Node
    wanted: Wanted
    patient: bool
    sender: int | None
    forgoing: bool


class Waits:
    """The receives that wait, in a run whose parties may go down for good.

    Invariant: as soon as it is certain that one of them can never be answered, the run ends with an error that says so.
    """

    def __init__(self) -> None:
        self.gone: dict[int, float] = {}
        """Who is down for good, and since when (s)."""
        self._waits: dict[Wanted, _Wait] = {}

    def add(self, node: Node, wanted: Wanted, patient: bool, sender: int | None, forgoing: bool) -> None:
        """``node`` begins to wait."""
        wait = self._waits[wanted] = _Wait(node, wanted, patient, sender, forgoing)
        self._check(wait)

    def remove(self, wanted: Wanted) -> None:
        """A receive has been answered or abandoned."""
        self._waits.pop(wanted, None)

    def hang_up(self, party: int) -> None:
        """``party`` has gone down: end the receives that are only about it, as if their time were up.

        Those that do without whoever goes down wait for the others.
        """
        for wait in list(self._waits.values()):
            if wait.sender == party:
                wait.node.mailbox.time_out(wait.wanted)
            elif wait.forgoing:
                wait.node.mailbox.forgo(wait.wanted, party)

    def check(self) -> None:
        """Somebody is down for good: end the run if anybody waits in vain."""
        for wait in list(self._waits.values()):
            self._check(wait)

    def hopeless(self, node: Node, needs: str, missing: Iterable[int]) -> IncompleteRoundError:
        """The error for ``node``'s wait for what ``needs`` says, which ``missing`` make impossible."""
        named = [f"client {party} went down for good at {self.gone[party]:.6g} s" for party in missing]
        return IncompleteRoundError(
            f"round {node.current_round} cannot be completed: {needs}; {few(named)}",
            remedy="say in its availability when it is repaired, or choose a protocol that goes on without it",
        )

    def __str__(self) -> str:
        waits = sorted(self._waits.values(), key=lambda wait: wait.node.party)
        return few([f"{party_name(wait.node.party)} waits for {wait.wanted}" for wait in waits], "; ")

    def _check(self, wait: _Wait) -> None:
        wanted, node = wait.wanted, wait.node
        if wait.patient or wanted.ready or not self.gone:
            return
        parties: Collection[int] = node.shared.mailboxes if wanted.senders is None else wanted.senders
        missing = [party for party in self.gone if party in parties and party not in wanted.heard]
        here = wanted.met
        can_come = len(parties) - len(missing) - (len(wanted.heard) if wanted.senders is not None else 1)
        enough = can_come > 0 if wanted.senders is None else here + can_come >= wanted.count
        if not enough:
            of = "" if wanted.senders is None else f" from as many of {len(wanted.senders)} clients"
            needs = f"needs {wanted.count} × {wanted.kind!r}{of}, {here} here, {can_come} can still come"
            node.world.fail(self.hopeless(node, needs, sorted(missing)), party_name(node.party))
