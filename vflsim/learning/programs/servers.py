"""Steps of the servers of runs side by side on single embeddings: one by one, or together on the sums of tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.embedding_table import Placed, SummedTable
from vflsim.learning.learners.joint import groups_of
from vflsim.learning.learners.server import ServerLearner
from vflsim.learning.programs.server_stack import Aggregated, ServerStack, is_chain
from vflsim.vocabulary.on_demand import Tensor


@dataclass(frozen=True, slots=True)
class Use:
    """What a server step of one run uses: embeddings ``h``, (rows, width) each, of batches of ``clients`` in order."""

    run: int
    clients: Sequence[int]
    batches: Sequence[Batch]
    h: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An embedding of a batch, read like a message."""

    sender: int
    batch: Batch | None
    value: Handle[Tensor]


class Servers(ABC):
    """The servers of R runs."""

    def __init__(self, servers: Sequence[ServerLearner]) -> None:
        self._servers = servers

    @abstractmethod
    def step(self, uses: Sequence[Use]) -> tuple[dict[int, Tensor], list[Sequence[Tensor]]]:
        """Step the servers; return their mean losses, (), by run, and ∂ℓ/∂h_m of the clients of each use."""

    def store(self, run: int, table: bool) -> None:
        """Bring what a server has learnt to its learner; with ``table``, its table, too."""
        return None


class EachServer(Servers):
    """Servers that step one after the other, by their learners."""

    def step(self, uses: Sequence[Use]) -> tuple[dict[int, Tensor], list[Sequence[Tensor]]]:
        """Step each with its own table."""
        losses, gradients = {}, list[Sequence[Tensor]]()
        for use in uses:
            server, noted = self._servers[use.run], list[Tensor]()
            first = 0 if server.embedding is None else 1  # its own gradient comes first
            parties = [server.parts.clients[client] for client in use.clients]
            uploads = zip(parties, use.batches, use.h, strict=True)
            messages = [Uploaded(party, batch, Handle.of(h)) for party, batch, h in uploads]
            groups = groups_of(messages)
            by_batch = server.step_on(server.inputs_of(groups, messages), noted.append)
            (losses[use.run],) = noted
            by_party = {
                message.sender: gradient
                for (_, some), each in zip(groups, by_batch, strict=True)
                for message, gradient in zip(some, each[first:], strict=True)
            }
            gradients.append([by_party[party] for party in parties])
        return losses, gradients


class SummedServers(Servers):
    """Servers whose aggregate is a sum over a table's rows, and whose models are chains: all step together.

    The rows of run r in the joint table begin at r N, for N training rows.
    """

    @staticmethod
    def take(server: ServerLearner) -> bool:
        """Return whether they take a server."""
        return server.parts.table and server.sums_rows and server.sums_of_all is not None and is_chain(server)

    def __init__(self, servers: Sequence[ServerLearner]) -> None:
        super().__init__(servers)
        self._stack, self._rows = ServerStack(servers), len(servers[0].parts.labels["train"])
        coefficients = servers[0].sums_of_all
        assert coefficients is not None, "``take`` says so"
        self._coefficients = coefficients
        self._factor = coefficients[0] if len({*coefficients}) == 1 else None
        tables = [server.table for server in servers]
        assert all(isinstance(table, SummedTable) for table in tables), "``take`` says so"
        self._tables = [table for table in tables if isinstance(table, SummedTable)]
        self._table = self._tables[0] if len(servers) == 1 else SummedTable.joining(self._tables)

    def step(self, uses: Sequence[Use]) -> tuple[dict[int, Tensor], list[Sequence[Tensor]]]:
        """Write all tables, then step on the sums of their rows."""
        arrived = [
            [
                (use.run * self._rows, client, batch, h)
                for client, batch, h in zip(use.clients, use.batches, use.h, strict=True)
            ]
            for use in uses
        ]
        layers = [[each for each in layer if each is not None] for layer in zip_longest(*arrived)]
        sums = self._table.write_together([part for layer in layers for part in _equally_long(layer)])
        groups: dict[int, list[tuple[int, Batch]]] = {}
        for use in uses:
            batches = {(batch.origin, batch.index): batch for batch in use.batches}
            for key in sorted(batches):
                groups.setdefault(len(batches[key]), []).append((use.run, batches[key]))
        sums = sums if len(groups) == 1 else None  # in the order of the runs, as the groups of one length
        inputs = []
        for _, some in sorted(groups.items()):  # in an order that does not depend on the other runs
            values = self._table.joined_together([(run * self._rows, batch) for run, batch in some], sums)
            inputs.append(Aggregated([run for run, _ in some], [batch for _, batch in some], values))
        losses, by_sums = self._stack.step(inputs)
        received: dict[tuple[int, Batch], Tensor] = {}
        for each, by_sum in zip(inputs, by_sums, strict=True):
            scaled = by_sum if self._factor is None else by_sum * self._factor
            received.update(zip(zip(each.runs, each.batches, strict=True), scaled, strict=True))
        return losses, [
            [
                self._scaled(received[use.run, batch], client)
                for client, batch in zip(use.clients, use.batches, strict=True)
            ]
            for use in uses
        ]

    def store(self, run: int, table: bool) -> None:
        """Copy the model and, if asked, the rows of the run's table."""
        self._stack.store(run)
        if table and len(self._servers) > 1:
            self._table.copy_to(self._tables[run], run * self._rows)

    def _scaled(self, gradient: Tensor, client: int) -> Tensor:
        return gradient if self._factor is not None else gradient * self._coefficients[client]


def _equally_long(layer: Sequence[Placed]) -> list[list[Placed]]:
    by_length: dict[int, list[Placed]] = {}
    for each in layer:
        by_length.setdefault(len(each[2]), []).append(each)
    return [*by_length.values()]
