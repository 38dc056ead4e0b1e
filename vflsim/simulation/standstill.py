"""Runs that stand still: clients that wait for messages that can no longer come, and runs without an end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from vflsim.errors import NoProgressError
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.releases import Releases
from vflsim.results.facts import StalledClient
from vflsim.simulation.build import Parties
from vflsim.stopping.end_rule import EndRule
from vflsim.streams import SERVER, few, party_name
from vflsim.world.mailbox import Wanted
from vflsim.world.messages import EvaluationAnswer, Message
from vflsim.world.node import Node
from vflsim.world.task import Task, evaluation_task

FEW = 10
"""Rounds, in addition to one per client, that a client may wait for an answer before it counts as stalled.

A server may hold one message of every client, and answer one per step.
"""


def stalled_clients(clients: Sequence[Node]) -> tuple[StalledClient, ...]:
    """Return the stalled clients in client order. Call it while the tasks of the run still wait.

    A client has stalled if all these conditions hold: it is up; its coroutine waits, without a timeout, for messages of
    one past round; ``FEW`` rounds and one per client have been completed since that wait began, and since a party last
    received a message from it; its other tasks also wait for messages only; no message that would answer it is under
    way; and no message of its own is under way, or unread with a receiver that may still read it (it has not passed
    over the message for that many rounds). Evaluations are no sign of life: a stalled client answers them, too.

    For a client that is slow, paused, not activated, or queued at the server one of these conditions fails.
    """
    if not clients:
        return ()
    shared = clients[0].shared
    recorder, patience = shared.recorder, FEW + len(clients)
    tasks: defaultdict[int, list[Task]] = defaultdict(list)
    for task in shared.world.tasks() if recorder.rounds >= patience else ():
        if not task.observer and task.who != evaluation_task(task.party):
            tasks[task.party].append(task)
    waits = {node.party: (node, *wait) for node in clients if (wait := _past_wait(node, tasks[node.party]))}
    boxes = shared.mailboxes.values()
    late = {
        party: wait
        for party, wait in waits.items()
        if recorder.steps_between(max(wait[2].since, *(box.read.get(party, 0.0) for box in boxes))) >= patience
    }
    if not late:
        return ()
    helped = {message.sender for message in shared.transport.under_way() if not isinstance(message, EvaluationAnswer)}
    for message, received in chain.from_iterable(box.unread() for box in boxes):
        if isinstance(message, EvaluationAnswer) or message.sender not in late:
            continue
        if recorder.steps_between(message.arrived, received) < patience:
            helped.add(message.sender)
    for message in shared.transport.under_way():
        if message.receiver in late and _answers(message, *late[message.receiver]):
            helped.add(message.receiver)
    return tuple(
        StalledClient(
            client=party,
            kind=wanted.kind,
            round=wanted.round,
            since_s=wanted.since,
            rounds=recorder.steps_between(wanted.since),
        )
        for party, (_, _, wanted) in late.items()
        if party not in helped
    )


def _past_wait(node: Node, tasks: Sequence[Task]) -> tuple[Task, Wanted] | None:
    """Return a client's main task and its receive for a past round, if the client only waits for messages."""
    main = next((task for task in tasks if task.who == party_name(node.party)), None)
    if main is None or node.down or not all(_only_a_message_helps(task) for task in tasks):
        return None
    wanted = main.waiting
    assert isinstance(wanted, Wanted)
    past = wanted.round is not None and wanted.round < node.current_round
    open_ended = any(not scope.names_a_round for scope in node.state.scopes.open.get(main, ()))
    return (main, wanted) if past and not open_ended else None


def _only_a_message_helps(task: Task) -> bool:
    waiting = task.waiting
    return isinstance(waiting, Wanted) and not waiting.patient and not waiting.ready


def _answers(message: Message, node: Node, main: Task, wanted: Wanted) -> bool:
    asked = message.kind == wanted.kind and wanted.matches(message)
    return asked or any(scope.ends_with(message) for scope in node.state.scopes.open.get(main, ()))


# --- runs without an end ----------------------------------------------------------------------------------------------


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
        self._part = self._all = 0
        self._kinds: dict[str, None] = {}

    def add(self, operation: Operation[Any]) -> bool:
        """Note a computation; return whether there have been too many."""
        counter = self._count
        count = counter(self._counted)
        if count != self._seen:
            self._seen, self._part, self._all = count, 0, 0
            self._kinds.clear()
            return False
        self._all += 1
        if (operation.party == SERVER) is self._by_server:
            self._part += 1
            self._kinds[operation.kind] = None
        return self._part > self._patience or self._all > self._of_all

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
            f"no {self.what} was counted in {self._part:,} computations of {who}{did} and {self._all:,} of all {after}"
        )
