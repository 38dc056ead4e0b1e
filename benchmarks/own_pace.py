"""What a step of one among M asynchronous clients costs beside plain PyTorch that keeps the sums of the server's table.

Shapes and clocks are those of ``learning_plane.py``. Contenders: vflsim's learning plane; its program of such steps,
which needs no events besides; the learning plane with ``--eager``, whose server reads the rows of all clients; and a
plain loop with a module and an optimiser for each client, a table (clients, rows, width), and the sum of its rows in
float32, which every step changes by what is new. All take turns.
Run: python benchmarks/own_pace.py [--clients 10 100 1000]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from learning_plane import (
    BLOCKS,
    FEATURES,
    MODELS,
    RATE,
    TOGETHER,
    WIDTH,
    LearningPlane,
    Problem,
    milliseconds,
    split_runs,
)
from torch import Tensor, nn

from vflsim.learning.programs.own_pace import OwnPaceProgram
from vflsim.simulation.collector import patient_collector


class Plain:
    """A module and an optimiser for every client; the server keeps the sum of the latest embeddings of each row."""

    def __init__(self, problem: Problem, model: str) -> None:
        self.problem, parties = problem, range(problem.clients)
        self.x = [problem.x[:, m * FEATURES : (m + 1) * FEATURES] for m in parties]
        self.models = [problem.client(MODELS[model], 1 + m) for m in parties]
        self.server = problem.server()
        self.optimizers = [torch.optim.SGD(each.parameters(), lr=RATE.lr) for each in (*self.models, self.server)]
        self.table = torch.from_numpy(np.zeros((problem.clients, problem.rows, WIDTH), np.float32)).to(problem.device)
        self.sums = torch.zeros(problem.rows, WIDTH, device=problem.device)
        self.order = np.random.Generator(np.random.Philox(0))
        self.begun = dict.fromkeys(parties, 0)
        self.waiting = {m: self.embedded(m) for m in parties}

    def embedded(self, m: int) -> tuple[Tensor, Tensor]:
        """The next batch of a client, and its embedding."""
        ids = self.problem.batches.batch(self.begun[m]).tensor(self.problem.device)
        self.begun[m] += 1
        return ids, self.models[m](self.x[m][ids])

    def run(self, steps: int) -> None:
        """Steps of one client each, in random order."""
        loss_of, clients = nn.CrossEntropyLoss(), self.problem.clients
        for m in self.order.integers(0, clients, steps).tolist():
            ids, h = self.waiting[m]
            with torch.no_grad():
                mine = self.table[m]
                sums = self.sums[ids] + (h - mine[ids])
                mine[ids], self.sums[ids] = h, sums
                mean = sums / clients
            loss = loss_of(self.server(mean.requires_grad_()), self.problem.y[ids])
            for optimizer in (self.optimizers[-1], self.optimizers[m]):
                optimizer.zero_grad()
            loss.backward()
            assert mean.grad is not None, "the loss depends on it"
            h.backward(mean.grad / clients)
            for optimizer in (self.optimizers[-1], self.optimizers[m]):
                optimizer.step()
            self.waiting[m] = self.embedded(m)


class Program:
    """vflsim's program, of ``runs`` side by side, with clients in random order."""

    def __init__(self, problem: Problem, model: str, steps: int, runs: int = 1) -> None:
        planes = [LearningPlane(problem, model, table=True) for _ in range(runs)]
        order = np.random.Generator(np.random.Philox(0)).integers(0, problem.clients, (steps * (BLOCKS + 1), 1))
        self.program = OwnPaceProgram(split_runs(planes, [*order], lockstep=False))

    def run(self, steps: int) -> None:
        """Steps of one client each, of each run."""
        for _ in range(steps):
            self.program.play()


def compare(model: str, clients: int, steps: int, device: str = "cpu") -> dict[str, float]:
    """Milliseconds a step of all contenders."""
    problem = Problem(clients, device)
    found = milliseconds(
        {
            "plain": Plain(problem, model).run,
            "vflsim": LearningPlane(problem, model, table=True).run_asynchronously,
            "program": Program(problem, model, steps).run,
            "together": Program(problem, model, steps, TOGETHER).run,
            "eager": LearningPlane(problem, model, eager=True, table=True).run_asynchronously,
        },
        steps,
    )
    found["together"] /= TOGETHER
    plain, vflsim, program, together, eager = found.values()
    print(
        f"{model:6} {clients:5} clients, a step of one: plain {plain:6.2f} ms, vflsim {vflsim:6.2f}, "
        f"program {program:6.2f}, each of {TOGETHER} side by side {together:6.2f}, eager {eager:6.2f}; "
        f"vflsim/plain {vflsim / plain:.2f}, program/plain {program / plain:.2f}, "
        f"together/plain {together / plain:.2f}, eager/vflsim {eager / vflsim:.2f}",
        flush=True,
    )
    return found


def main(clients: Sequence[int] = (10, 100, 1000), steps: int = 200) -> None:
    """Everything, printed as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, nargs="+", default=clients)
    parser.add_argument("--steps", type=int, default=steps)
    said = parser.parse_args()
    torch.set_num_threads(1)
    with patient_collector():
        for model in MODELS:
            for count in said.clients:
                compare(model, count, said.steps)


if __name__ == "__main__":
    main()
