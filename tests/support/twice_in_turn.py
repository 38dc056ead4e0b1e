"""Sequential FedBCD whose server computes each client's gradient twice, and uses the second."""

from typing import Any, ClassVar, Literal

from vflsim.protocol import ROUNDS, Gradient, Node, Traits
from vflsim.protocols.fedbcd import FedBcd, RoundOver
from vflsim.protocols.in_flight import answered


class TwiceInTurn(FedBcd):
    kind: Literal["twice_in_turn"] = "twice_in_turn"  # type: ignore[assignment]
    order: Literal["sequential"] = "sequential"
    traits: ClassVar[Traits] = ROUNDS

    async def sequential_server(self, node: Node[Any]) -> None:
        for t in node.rounds():
            latest = {each.sender: each for each in await node.gather("embedding", senders=node.clients, round=t)}
            for client in node.clients:
                for _ in range(2):
                    gradient = await node.compute(node.learner.gradient([*latest.values()], client))
                latest[client] = await answered(node, client, Gradient(value=gradient, round=t))
            await node.compute(node.learner.server_step([*latest.values()]))
            for client in node.clients:
                await node.send(client, RoundOver(round=t))
