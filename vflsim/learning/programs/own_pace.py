"""Rounds on embeddings one beside the other: of clients at their own pace, and of servers that need each embedding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vflsim.learning.batches import Batch
from vflsim.learning.programs.rounds import JointProgram, SplitRun
from vflsim.learning.programs.servers import EachServer, Servers, SummedServers, Use
from vflsim.vocabulary.on_demand import Tensor

_MOST = 2**28
"""Bytes of embeddings that are computed together before they are needed."""


class OwnPaceProgram(JointProgram):
    """Runs whose servers step on embeddings of some clients, each of which walks its own batches.

    Invariants: a client has stepped on what it has received before it embeds again. When an embedding is needed, all
    clients step that do so until the next row, and all that have stepped embed their next batch, together.
    """

    def __init__(self, runs: Sequence[SplitRun]) -> None:
        super().__init__(runs, in_step=False)
        servers = [run.server for run in runs]
        self._servers: Servers = SummedServers(servers) if SummedServers.take(servers[0]) else EachServer(servers)
        self._h: list[dict[int, Tensor]] = [{} for _ in runs]
        """Embeddings of the clients' next batches, of those that are computed."""

    def store(self, number: int, table: bool = False) -> None:
        """Bring also the server's model, and with ``table`` its table, to its learner."""
        super().store(number, table)
        self._servers.store(number, table)

    def state(self, number: int) -> dict[str, Tensor]:
        """Return also the embeddings of the next batches."""
        return super().state(number) | {f"embedded.{client}": h for client, h in self._h[number].items()}

    def load(self, number: int, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        super().load(number, state)
        for client, learner in enumerate(self.runs[number].clients):
            if (h := state.get(f"embedded.{client}")) is not None:
                self._h[number][client] = h.clone().to(learner.parts.features["train"].device)

    def play(self) -> None:
        """Play the next round of every run."""
        used = [run.cursor.clients for run in self.runs]
        if not all(h.keys() >= {*clients} for h, clients in zip(self._h, used, strict=True)):
            self._embed_what_is_due(used)
        uses = [
            Use(number, clients, [self._batch(number, client) for client in clients],
                [self._h[number].pop(client) for client in clients])
            for number, clients in enumerate(used)
        ]  # fmt: skip
        losses, gradients = self._servers.step(uses)
        self._note(losses)
        for use, received in zip(uses, gradients, strict=True):
            run = self.runs[use.run]
            some = zip(use.clients, run.cursor.steps(), use.batches, received, strict=True)
            run.received |= {client: (batch, each) for client, steps, batch, each in some if steps}
            run.cursor.advance()

    def _embed_what_is_due(self, used: Sequence[Sequence[int]]) -> None:
        lacking = [[client for client in some if client not in h] for some, h in zip(used, self._h, strict=True)]
        needed = {n: {*self._due(run), *(run.received.keys() & {*lacking[n]})} for n, run in enumerate(self.runs)}
        self._settle({n: sorted(clients) for n, clients in needed.items()})
        ready = {n: self._ready(n, some) for n, some in enumerate(lacking)}
        batches = {n: {client: self._batch(n, client) for client in some} for n, some in ready.items()}
        for stack, shares in self._alike(ready, batches):
            for (share, client), h in zip(self._clients_of(shares), stack.embed(shares), strict=True):
                self._h[share.run][client] = h

    def _ready(self, number: int, lacking: Iterable[int]) -> list[int]:
        """Return the clients of a run that ``lacking`` names, and others that can embed, as far as memory allows."""
        run, needed = self.runs[number], {*lacking}
        there = self._h[number].keys() | run.received.keys() | needed
        beside = [client for client in range(len(run.clients)) if client not in there and run.cursor.next_batch(client)]
        bytes_each = len(run.cursor.batch_of(0, 0)) * run.clients[0].width * 8 * len(self.runs)
        return sorted([*needed, *beside[: _MOST // bytes_each]])

    def _batch(self, number: int, client: int) -> Batch:
        batch = self.runs[number].cursor.next_batch(client)
        assert batch is not None, "a later round uses it"
        return batch
