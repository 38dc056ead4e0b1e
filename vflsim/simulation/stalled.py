"""Detect stalled clients: they wait for messages that can no longer come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from vflsim.results.facts import StalledClient
from vflsim.streams import party_name
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
    waits = {node.party: (node, *found) for node in clients if (found := _past_wait(node, tasks[node.party]))}
    boxes = shared.mailboxes.values()
    late = {
        party: found
        for party, found in waits.items()
        if recorder.steps_between(max(found[2].since, *(box.read.get(party, 0.0) for box in boxes))) >= patience
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
    """Return whether a message under way may end the wait, or a block around it."""
    asked = message.kind == wanted.kind and wanted.matches(message)
    return asked or any(scope.ends_with(message) for scope in node.state.scopes.open.get(main, ()))
