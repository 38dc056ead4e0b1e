"""What training M clients costs beside training one model with all their features.

One synchronous round, Fashion-MNIST shapes (28 features a client, embeddings of 64, batches of 256, server 128-64-10,
mean), by (a) a centralised PyTorch loop, (b) vflsim's learning plane, (c) the same with ``--eager``, (d) a loop with a
module and an optimiser a client, (e) vflsim's program of a round, (f) each of five runs of that side by side. All take
turns in blocks of rounds; times are medians over blocks, in milliseconds a round of one thread's processor time (with
``--threads 2``: of the wall clock), and ratios are of one run.
``own_pace.py`` has the steps of asynchronous clients.
Run: OMP_WAIT_POLICY=passive python benchmarks/learning_plane.py [--out FOLDER] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vflsim.learning.batches import BatchSequence, Split
from vflsim.learning.batching.kernels import stack_clients
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.server import ServerLearner, ServerParts
from vflsim.learning.models.aggregates import MeanAggregate
from vflsim.learning.models.build import seeded
from vflsim.learning.models.client import ClientModel, LinearClient, MlpClient
from vflsim.learning.models.server import MlpServer
from vflsim.learning.optimizers import Sgd
from vflsim.learning.programs.lockstep import SumProgram
from vflsim.learning.programs.rounds import SplitRun
from vflsim.learning.programs.schedule import Cursor, RunSchedule, ScheduledRow
from vflsim.learning.tasks import task_of
from vflsim.learning.training import Training
from vflsim.simulation.collector import patient_collector
from vflsim.world.messages import Embedding, Gradient, Message

FEATURES, WIDTH, BATCH, HIDDEN, CLASSES = 28, 64, 256, (128, 64), 10
RATE = Sgd(lr=0.05)
CLIENTS = (8, 28, 128, 1000)
BLOCKS = 9
TOGETHER = 5
"""Runs side by side."""
MODELS: dict[str, ClientModel] = {
    "linear": LinearClient(embedding=WIDTH),
    "mlp": MlpClient(embedding=WIDTH, hidden=(32,)),
}
Blocks = dict[str, Callable[[int], object]]


class Problem:
    """Random features of M clients side by side, and labels: by default of rows for about a gigabyte at most."""

    ROWS, FEW = 60_000, 8_000

    def __init__(self, clients: int, device: str = "cpu", rows: int | None = None) -> None:
        self.clients, self.device = clients, torch.device(device)
        self.rows = rows or (self.ROWS if clients <= 128 else self.FEW)
        draw = torch.Generator().manual_seed(0)
        self.x = torch.rand((self.rows, clients * FEATURES), generator=draw).to(device)
        self.y = torch.randint(CLASSES, (self.rows,), generator=draw).to(device)
        training = Training(batch=BATCH, client_optimizer=RATE, server_optimizer=RATE, last_batch="drop")
        self.batches = BatchSequence(self.rows, training, 0, 0)

    def server(self) -> nn.Module:
        """The same initial weights for all."""
        return seeded(partial(MlpServer(hidden=HIDDEN).build, WIDTH, CLASSES), 0, torch.float32, self.device)

    def client(self, model: ClientModel, number: int) -> nn.Module:
        """A client's."""
        return seeded(partial(model.build, (FEATURES,)), number, torch.float32, self.device)


class Centralised:
    """(a) One model with all features; the mean over clients is a linear layer over all of them."""

    def __init__(self, problem: Problem, model: str) -> None:
        width = problem.clients * FEATURES
        layers: list[nn.Module] = [nn.Linear(width, WIDTH)]
        if model == "mlp":
            layers = [nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, WIDTH)]
        self.problem, self.model = problem, nn.Sequential(*layers, problem.server()).to(problem.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE.lr)
        self.round = 0

    def run(self, rounds: int) -> None:
        """So many rounds."""
        loss_of = nn.CrossEntropyLoss()
        for _ in range(rounds):
            ids = self.problem.batches.batch(self.round).tensor(self.problem.device)
            self.round += 1
            loss = loss_of(self.model(self.problem.x[ids]), self.problem.y[ids])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


class OneByOne:
    """(d) A module and an optimiser for every client."""

    def __init__(self, problem: Problem, model: str) -> None:
        self.problem = problem
        self.x = [problem.x[:, m * FEATURES : (m + 1) * FEATURES] for m in range(problem.clients)]
        self.models = [problem.client(MODELS[model], m) for m in range(problem.clients)]
        self.server = problem.server()
        self.optimizers = [torch.optim.SGD(each.parameters(), lr=RATE.lr) for each in (*self.models, self.server)]
        self.round = 0

    def run(self, rounds: int) -> None:
        """So many rounds."""
        loss_of = nn.CrossEntropyLoss()
        for _ in range(rounds):
            ids = self.problem.batches.batch(self.round).tensor(self.problem.device)
            self.round += 1
            h = [model(x[ids]) for model, x in zip(self.models, self.x, strict=True)]
            sent = [each.detach().requires_grad_() for each in h]
            loss = loss_of(self.server(torch.stack(sent).mean(0)), self.problem.y[ids])
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss.backward()
            for each, leaf in zip(h, sent, strict=True):
                each.backward(leaf.grad)
            for optimizer in self.optimizers:
                optimizer.step()


class LearningPlane:
    """(b), (c): the operations of a run, without its timing plane."""

    def __init__(self, problem: Problem, model: str, eager: bool = False, table: bool = False) -> None:
        self.problem, parties = problem, range(1, problem.clients + 1)
        columns = {m: slice((m - 1) * FEATURES, m * FEATURES) for m in parties}
        joint: dict[Split, Tensor] = {"train": problem.x}
        self.clients = {
            m: ClientLearner(
                ClientParts(
                    m,
                    {"train": problem.x[:, columns[m]]},
                    partial(problem.client, MODELS[model], m),
                    RATE,
                    WIDTH,
                    BATCH,
                )
            )
            for m in parties
        }
        self.server = ServerLearner(
            ServerParts(
                tuple(parties), (WIDTH,) * problem.clients, {"train": problem.y}, problem.server, RATE, MeanAggregate(),
                task_of("multiclass"), BATCH, torch.float32, table,
            )
        )  # fmt: skip
        if not eager:
            stack_clients(self.clients, dict.fromkeys(parties, MODELS[model]), joint, columns, MeanAggregate(), table)
            self.server.sums_rows = table
        self.executor = DeferredExecutor()
        self.round = 0
        self.order = np.random.Generator(np.random.Philox(0))
        self.waiting: dict[int, Message] = {}
        self.begun = dict.fromkeys(parties, 0)

    def run(self, rounds: int) -> None:
        """Synchronous rounds."""
        for _ in range(rounds):
            batch = self.problem.batches.batch(self.round)
            self.round += 1
            sent = [self._sent(m, Embedding(batch, self._done(each.embed(batch)))) for m, each in self.clients.items()]
            step = self._done(self.server.server_step(sent))
            for m, message in zip(self.clients, sent, strict=True):
                gradient = Gradient(value=step.gradient_for(message))
                self._done(self.clients[m].client_step(batch, gradient))
        self.executor.flush()

    def run_asynchronously(self, steps: int) -> None:
        """Steps of one client each, in random order."""
        for m in self.clients if not self.waiting else ():
            self._embed(m)
        for m in self.order.integers(1, self.problem.clients + 1, steps):
            message = self.waiting[int(m)]
            step = self._done(self.server.server_step([message]))
            gradient = Gradient(value=step.gradient_for(message))
            self._done(self.clients[int(m)].client_step(message.batch, gradient))
            self._embed(int(m))
        self.executor.flush()

    def _embed(self, m: int) -> None:
        batch = self.problem.batches.batch(self.begun[m])
        self.begun[m] += 1
        self.waiting[m] = self._sent(m, Embedding(batch, self._done(self.clients[m].embed(batch))))

    def _done(self, operation: Operation[Any]) -> Any:
        self.executor.submit(operation)
        if operation.commit is not None:
            operation.commit()
        return operation.result

    @staticmethod
    def _sent(m: int, message: Message) -> Message:
        message.sender = m
        return message


def split_runs(planes: Sequence[LearningPlane], rounds: Sequence[NDArray[Any]], lockstep: bool) -> list[SplitRun]:
    """Runs of a program whose rounds use embeddings of these clients."""
    count = len(planes[0].clients)
    begun, numbers = np.zeros(count, np.int64), list[NDArray[Any]]()
    for k, used in enumerate(rounds):
        numbers.append(np.array(k) if lockstep else begun[used].copy())
        begun[used] += 1
    schedule = RunSchedule(rounds, numbers, [ScheduledRow(len(rounds), np.zeros(count, bool))])
    sequences = [planes[0].problem.batches] * count
    return [SplitRun(each.server, [*each.clients.values()], Cursor(schedule, sequences)) for each in planes]


class Program:
    """(e), (f): a program of rounds of ``runs`` side by side."""

    def __init__(self, problem: Problem, model: str, rounds: int, runs: int = 1) -> None:
        planes = [LearningPlane(problem, model) for _ in range(runs)]
        everybody = np.arange(problem.clients)
        self.program = SumProgram(split_runs(planes, [everybody] * rounds * (BLOCKS + 1), lockstep=True))

    def run(self, rounds: int) -> None:
        """Synchronous rounds of each run."""
        for _ in range(rounds):
            self.program.play()


def milliseconds(blocks: Blocks, rounds: int) -> dict[str, float]:
    """Medians a round, all contenders taking turns after a first block that does not count."""
    times: dict[str, list[float]] = {name: [] for name in blocks}
    clock = time.process_time if torch.get_num_threads() == 1 and not torch.cuda.is_available() else time.perf_counter
    for _ in range(1 + BLOCKS):
        for name, block in blocks.items():
            began = clock()
            block(rounds)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times[name].append(1e3 * (clock() - began) / rounds)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def synchronous(model: str, clients: int, device: str = "cpu", rounds: int | None = None) -> dict[str, float]:
    """A round by each of the six ways; blocks of 1500 client-rounds, but of 3 rounds at least, or of ``rounds``."""
    problem, rounds = Problem(clients, device), rounds or max(3, 1500 // max(28, clients))
    found = milliseconds(
        {
            "a": Centralised(problem, model).run,
            "b": LearningPlane(problem, model).run,
            "c": LearningPlane(problem, model, eager=True).run,
            "d": OneByOne(problem, model).run,
            "e": Program(problem, model, rounds).run,
            "f": Program(problem, model, rounds, TOGETHER).run,
        },
        rounds,
    )
    found["f"] /= TOGETHER
    a, b, c, d, e, f = (found[name] for name in "abcdef")
    print(
        f"{model:6} {clients:5} clients: centralised {a:7.2f} ms, vflsim {b:7.2f}, eager {c:7.2f}, one by one {d:7.2f};"
        f" program {e:7.2f}, each of {TOGETHER} side by side {f:7.2f}; b/a {b / a:.2f}, c/b {c / b:.2f}, "
        f"d/b {d / b:.2f}, e/a {e / a:.2f}, f/a {f / a:.2f}, d/e {d / e:.2f}",
        flush=True,
    )
    return found


def picture(found: dict[str, dict[str, float]], clients: Sequence[int], place: Path) -> None:
    """Cost of a round against the number of clients."""
    from matplotlib.figure import Figure

    names = {
        "a": "centralised loop",
        "b": "vflsim",
        "c": "vflsim --eager",
        "d": "a module per client",
        "e": "program",
        "f": "side by side",
    }
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, model in zip(panels, MODELS, strict=True):
        for (way, label), marker in zip(names.items(), "osv^DP", strict=True):
            panel.plot(clients, [found[f"{model}/{m}"][way] for m in clients], marker=marker, label=label)
        panel.set(xscale="log", yscale="log", xlabel="clients", title=f"{model} clients")
        panel.set_xticks(clients, [f"{m:,}" for m in clients], minor=False)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("ms a synchronous round")
    panels[0].legend(frameon=False)
    figure.savefig(place, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="folder for learning_plane.json and .png")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--threads", type=int, default=1)
    said = parser.parse_args()
    torch.set_num_threads(said.threads)
    with patient_collector():  # as in every run
        measure(said.clients, said.out)


def measure(clients: Sequence[int], out: Path | None) -> None:
    """Everything, printed as it comes."""
    print(f"{torch.get_num_threads()} threads, medians of {BLOCKS} blocks, PyTorch {torch.__version__}")
    found = {f"{model}/{m}": synchronous(model, m) for model in MODELS for m in clients}
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "learning_plane.json").write_text(json.dumps(found, indent=2) + "\n")
        picture(found, clients, out / "learning_plane.png")


if __name__ == "__main__":
    main()
