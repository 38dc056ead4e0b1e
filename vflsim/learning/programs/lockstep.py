"""Rounds in which all clients embed one batch, and the server needs no more than the sum of their embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vflsim.learning.batching.stack import Backward
from vflsim.learning.programs.rounds import JointProgram, SplitRun
from vflsim.learning.programs.server_stack import Aggregated, ServerStack, is_chain
from vflsim.vocabulary.on_demand import Tensor, torch


def sum_alone(run: SplitRun) -> float | None:
    """Return what the sum of all embeddings is multiplied by, if the server needs no more of them; None otherwise."""
    coefficients = run.server.sums_of_all
    shared = coefficients is not None and len({*coefficients}) == 1
    summed = shared and all(stack.joint for stack in run.stacks) and run.cursor.schedule.in_lockstep
    return coefficients[0] if coefficients and summed and is_chain(run.server) else None


class SumProgram(JointProgram):
    """Runs for which ``sum_alone`` returns a factor.

    Invariant: of a run, all clients have received the same gradient. A round in which all of them step leaves their
    gradients to one product a stack.
    """

    def __init__(self, runs: Sequence[SplitRun]) -> None:
        super().__init__(runs, in_step=True)
        factor = sum_alone(runs[0])
        assert factor is not None, "the caller has asked"
        self._factor, self._servers = factor, ServerStack([run.server for run in runs])
        self._backs: list[tuple[Sequence[int], list[Backward], Tensor]] = []
        """Of the latest round: runs whose batches are equally long, the way back of each stack, and ∂ℓ/∂h_m."""

    def store(self, number: int, table: bool = False) -> None:
        """Bring also the server's model to its learner."""
        super().store(number, table)
        self._servers.store(number)

    def load(self, number: int, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned, and the way back of a round after which no client has stepped."""
        super().load(number, state)
        received = self.runs[number].received
        if len(received) == len(self._places):
            batch, gradient = received[0]
            backs = [stack.totals([number], [batch])[1] for stack in self._stacks]
            self._backs.append(([number], backs, gradient[None]))

    def play(self) -> None:
        """Play the next round of every run."""
        self._settle({number: sorted(run.received) for number, run in enumerate(self.runs)})
        batches = [run.cursor.batch for run in self.runs]
        lengths: dict[int, list[int]] = {}
        for number, batch in enumerate(batches):
            lengths.setdefault(len(batch), []).append(number)
        inputs, backs = list[Aggregated](), list[list[Backward]]()
        for runs in lengths.values():
            its = [batches[number] for number in runs]
            totals = [stack.totals(runs, its) for stack in self._stacks]
            total = sum((total for total, _ in totals[1:]), start=totals[0][0])
            inputs.append(Aggregated(runs, its, total * self._factor))
            backs.append([back for _, back in totals])
        losses, by_sums = self._servers.step(inputs)
        self._note(losses)
        self._backs = []
        for each, some, by_sum in zip(inputs, backs, by_sums, strict=True):
            received = by_sum * self._factor
            self._backs.append((each.runs, some, received))
            for number, batch, gradient in zip(each.runs, each.batches, received, strict=True):
                self.runs[number].received = dict.fromkeys(range(len(self._places)), (batch, gradient))
        for run in self.runs:
            run.cursor.advance()

    def _settle(self, clients: Mapping[int, Sequence[int]]) -> None:
        """Have all clients of some runs step by one product a stack, and others one beside the other."""
        for runs, backs, received in self._backs:
            whole = [n for n, number in enumerate(runs) if len(clients.get(number, ())) == len(self._places)]
            if not whole:
                continue
            for stack, back in zip(self._stacks, backs, strict=True):
                stack.step_all([runs[n] for n in whole], _only(whole, len(runs), back(received)))
            for n in whole:
                self.runs[runs[n]].received.clear()
        super()._settle({n: [each for each in some if each in self.runs[n].received] for n, some in clients.items()})


def _only(some: Sequence[int], runs: int, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the gradients (R S, …) of some of R runs."""
    if len(some) == runs:
        return gradients
    return [torch.cat([torch.chunk(each, runs)[n] for n in some]) for each in gradients]
