"""The states of a run's parties in the learning plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vflsim.learning.batching.stack import Stack
from vflsim.learning.states import State
from vflsim.simulation.build import Parties
from vflsim.streams import party_name
from vflsim.world.node import Node


def stacks_of(parties: Parties) -> list[Stack]:
    """Return the stacks of a run, in the order of their first clients."""
    return list(dict.fromkeys(node.learner.stack for node in parties.clients if node.learner.stack is not None))


def nodes_of(parties: Parties) -> tuple[Node, ...]:
    """Return the nodes of all parties."""
    return (parties.server, *parties.clients)


def client_of(parties: Parties, client: int) -> Node:
    """Return a client's node."""
    return parties.clients[parties.shared.clients.index(client)]


def states_of(parties: Parties) -> dict[str, dict[str, Tensor]]:
    """Return the states of all parties and stacks by name; tensors are not copied (``learning.states``)."""
    return {name: owner.state() for name, owner in _owners(parties).items()}


def load_states(parties: Parties, states: Mapping[str, State]) -> None:
    """Restore the ``states`` of all parties. Stacks come first: their weights rebuild the graphs."""
    for name, owner in _owners(parties).items():
        owner.load(states[name])


def _owners(parties: Parties) -> dict[str, Any]:
    nodes = nodes_of(parties)
    return {
        **{f"stack-{n}": stack for n, stack in enumerate(stacks_of(parties))},
        **{party_name(node.party): node.learner for node in nodes},
        **{f"{party_name(node.party)}'s wire": node.state.wire for node in nodes},
        **({} if parties.shared.views is None else {"views": parties.shared.views}),
    }
