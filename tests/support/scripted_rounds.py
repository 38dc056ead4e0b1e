"""A protocol from outside whose rounds follow a script, and random scripts: trips, local steps, pauses, work beside."""

from __future__ import annotations

import random
from typing import Any, ClassVar, Literal

from vflsim.protocol import ROUNDS, ClientNode, Embedding, Message, Operation, Protocol, ServerNode, Traits


class FirstUp(Message):
    kind: ClassVar[str] = "first_up"


class SecondUp(Message):
    kind: ClassVar[str] = "second_up"


class FirstDown(Message):
    kind: ClassVar[str] = "first_down"


class SecondDown(Message):
    kind: ClassVar[str] = "second_down"


class News(Message):
    kind: ClassVar[str] = "news"


MESSAGES: dict[str, type[Message]] = {
    made.kind: made for made in (Embedding, FirstUp, SecondUp, FirstDown, SecondDown, News)
}


def work(learner: Any, rows: int, kind: str = "work", counts: Any = None) -> Operation[None]:
    """An operation without values."""
    operation: Operation[None] = learner.operation(
        kind, lambda: None, None, rows=rows, cost=lambda: 1e4 * rows, counts=counts
    )
    return operation


class Scripted(Protocol):
    """Every round does ``of_client`` and ``of_server``, step by step: a verb, and what it is about."""

    kind: Literal["scripted"] = "scripted"
    of_client: tuple[str, ...]
    of_server: tuple[str, ...]
    traits: ClassVar[Traits] = ROUNDS

    async def server(self, node: ServerNode) -> None:
        for k in node.rounds():
            embeddings: list[Message] = []
            rows = len(node.batch(k))
            for said in self.of_server:
                verb, _, about = said.partition(" ")
                if verb == "gather":
                    got = await node.gather(about, senders=node.clients, round=k)
                    embeddings = got if about == "embedding" else embeddings
                elif verb == "step":
                    await node.compute(node.learner.server_step(embeddings))
                elif verb == "work":
                    await node.compute(work(node.learner, rows))
                elif verb == "beside":  # its own work while the clients answer
                    trips = (self.trip(node, client, about, k) for client in node.clients)
                    await node.together(node.compute(work(node.learner, rows)), *trips)
                elif verb == "send":
                    for client in node.clients:
                        await node.send(client, MESSAGES[about](round=k))
                else:
                    raise AssertionError(said)

    async def trip(self, node: ServerNode, client: int, about: str, k: int) -> None:
        down, up = about.split()
        await node.send(client, MESSAGES[down](round=k))
        await node.recv(up, round=k, sender=client)

    async def client(self, node: ClientNode) -> None:
        for k in node.rounds():
            batch = node.batch(k)
            for said in self.of_client:
                verb, _, about = said.partition(" ")
                if verb == "activated":
                    await node.activated()
                elif verb == "embed":
                    h = await node.compute(node.learner.embed(batch))
                    await node.upload("server", Embedding(batch, h, round=k))
                elif verb == "upload":
                    await node.upload("server", MESSAGES[about](round=k))
                elif verb == "receive":
                    await node.recv(about, round=k)
                elif verb == "work":
                    await node.compute(work(node.learner, len(batch)))
                elif verb == "step":
                    await node.compute(work(node.learner, len(batch), "client_step", "update"))
                elif verb == "sleep":
                    await node.sleep(float(about))
                elif verb == "delay":
                    await node.delay("pause", float(about), round=k)
                else:
                    raise AssertionError(said)


def script(pick: random.Random) -> dict[str, Any]:
    """One to three trips, with work before, between, beside and after them on either side."""
    client, server = ["activated"], []

    def some(side: list[str], *said: str) -> None:
        for _ in range(pick.choice([0, 0, 1, 2])):
            side.append(pick.choice(said))

    if pick.random() < 0.3:  # the server begins: clients may still be at their last steps
        some(server, "work")
        server.append("send news")
        client.append("receive news")
    some(client, "work", "sleep 0.002", "delay 0.5")
    client.append("embed")
    some(server, "work")
    server.append("gather embedding")
    ended = pick.random() < 0.5
    server += ["step"] if ended else []
    for number in ("first", "second")[: pick.randint(0, 2)]:
        if pick.random() < 0.4:
            some(client, "work")  # busy while the server's message comes
        some(client, "step")
        if pick.random() < 0.3 and not ended:
            server.append(f"beside {number}_down {number}_up")
        else:
            server += [f"send {number}_down"]
            some(server, "work")
            server += [f"gather {number}_up"]
        client.append(f"receive {number}_down")
        some(client, "work", "step", "sleep 0.001", "delay 2")
        client.append(f"upload {number}_up")
        some(server, "work")
    server += [] if ended else ["step"]
    some(server, "work")
    if "send news" not in server and pick.random() < 0.9:  # else clients may run ahead of the server
        server.append("send news")
        client.append("receive news")
    some(server, "work")
    some(client, "step", "work")
    return {"kind": "module", "path": "scripted_rounds:Scripted", "of_client": client, "of_server": server}


def _party(pick: random.Random) -> dict[str, Any]:
    mean = pick.choice(["1 ms", "3 ms"])
    delay = {"kind": "exponential", "mean": mean}
    flops = {"kind": "flops", "rate": "50 MFLOPS", "jitter": {"kind": "lognormal", "median": 1, "sigma": 0.3}}
    return {
        "compute": pick.choice([delay, flops, "2 ms"]),
        "link": pick.choice([{}, {"up": "2 Mbps", "down": "3 Mbps", "latency": delay}]),
    }


def scripted_world(number: int) -> dict[str, Any]:
    """The changes to a tiny scenario for a random script in a random world, on links without contention."""
    pick = random.Random(number)
    clients: dict[str, Any] = {"select": "all", **_party(pick), "upload_delay": {"kind": "exponential", "mean": "4 ms"}}
    if pick.random() < 0.2:
        clients["activation"] = {"kind": "poisson", "rate": "300 /s"}
    if pick.random() < 0.2:
        clients["availability"] = {
            "kind": "alternating",
            "up": {"kind": "exponential", "mean": "200 ms"},
            "down": {"kind": "exponential", "mean": "9 ms"},
            "interrupted": "resumed",
        }
    server = _party(pick)
    if "availability" not in clients and pick.random() < 0.3:  # arrays know no energy where clients pause
        server["power"] = {"idle": "7 W", "compute": "20 W", "radio": "3 W", "per_byte": 1e-6}
        clients["power"] = {"idle": 0.1, "compute": "(0.3*m) W"}
    stop = pick.choice([{"rounds": 40}, {"time": "0.4 s"}, {"updates": 61}, {"epochs": 7}])
    every = pick.choice(["5 rounds", "20 ms", "7 updates"])
    return {
        "protocol": script(pick),
        "timing": {"server": server, "clients": clients},
        "partition": {"clients": pick.randint(1, 5), "by": "columns"},
        "training__batch": pick.choice([16, 20]),
        "stop": stop if "updates" not in stop else {**stop, "rounds": 40},
        "evaluate": {"every": every},
        "codec": pick.choice(["plain", "float16"]),
    }
