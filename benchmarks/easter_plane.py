"""What a round of EASTER costs beside plain PyTorch with two modules and an optimiser for each party.

C − 1 alike passive parties and an active one, 28 features each, embedding nets 28-32-64, prediction nets 64-64-10,
batches of 256, in the clear. Contenders: vflsim's learning plane, which computes the passive parties together; the same
with ``--eager``; and the plain loop. All take turns; the clock is that of ``learning_plane.py``.
Run: python benchmarks/easter_plane.py [--parties 4 10 28 64]
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from learning_plane import BATCH, CLASSES, FEATURES, RATE, WIDTH, Problem, milliseconds
from torch import nn

from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Operation
from vflsim.learning.tasks import task_of
from vflsim.protocols.easter.protocol import GlobalEmbedding, Prediction
from vflsim.scenario import load
from vflsim.scenario.resolve import setting
from vflsim.simulation.collector import patient_collector
from vflsim.world.messages import Embedding, Gradient, Message

NET: dict[str, Any] = {"kind": "mlp", "hidden": [32], "embedding": WIDTH}
PREDICTOR: dict[str, Any] = {"kind": "mlp", "hidden": [64]}


def learners_of(problem: Problem) -> tuple[Any, Any]:
    """The setting on the problem's data, whose first columns are the active party's, and the parties' learners."""
    passive, rate = problem.clients - 1, {"kind": "sgd", "lr": RATE.lr}
    nets = {"client": NET, "active": NET, "server": PREDICTOR, "predictor": PREDICTOR, "aggregate": "mean"}
    scenario = load(
        {
            "name": "easter",
            "data": {"name": "digits"},
            "partition": {"clients": passive, "by": "columns", "active": True},
            "models": nets,
            "timing": {"clients": {"compute": "1 ms"}},
            "training": {"batch": BATCH, "client_optimizer": rate, "server_optimizer": rate},
            "protocols": {"easter": {"kind": "easter", "blinding": "off"}},
            "stop": {"rounds": 1},
        }
    )
    columns = tuple(slice(m * FEATURES, (m + 1) * FEATURES) for m in range(problem.clients))
    features = [{"train": problem.x[:, own]} for own in columns]
    shapes, task = ((FEATURES,),) * passive, task_of("multiclass")
    data = LoadedData(
        "random", {"train": problem.x}, columns[1:], features[1:], shapes, {"train": problem.y}, task, CLASSES,
        active=features[0], server_shape=(FEATURES,),
    )  # fmt: skip
    resolved = setting(scenario, "easter", data)
    return resolved, scenario.protocols["easter"].protocol.learners(resolved, 0)


class Plane:
    """The operations of a run, without its timing plane."""

    def __init__(self, problem: Problem, eager: bool) -> None:
        resolved, made = learners_of(problem)
        if not eager:
            made.stack(resolved, False)
        self.problem, self.active, self.clients = problem, made.server, made.clients
        self.executor, self.round = DeferredExecutor(), 0

    def run(self, rounds: int) -> None:
        """Rounds of two trips."""
        for _ in range(rounds):
            batch = self.problem.batches.batch(self.round)
            self.round += 1
            sent = [_from(m, Embedding(batch, self._done(each.embed(batch)))) for m, each in self.clients.items()]
            mean = GlobalEmbedding(batch, self._done(self.active.join(self._done(self.active.embed(batch)), sent)))
            mine = self._done(self.active.predict(mean))
            theirs = [_from(m, Prediction(batch, self._done(each.predict(mean)))) for m, each in self.clients.items()]
            gradients = self._done(self.active.server_step(batch, mine, theirs))
            for m, each in self.clients.items():
                self._done(each.client_step(batch, Gradient(value=gradients[m])))
        self.executor.flush()

    def _done(self, operation: Operation[Any]) -> Any:
        self.executor.submit(operation)
        if operation.commit is not None:
            operation.commit()
        return operation.result


class Plain:
    """Two modules and an optimiser for each party."""

    def __init__(self, problem: Problem) -> None:
        _, made = learners_of(problem)
        parties = [made.server, *made.clients.values()]
        self.problem, self.round = problem, 0
        self.x = [problem.x[:, m * FEATURES : (m + 1) * FEATURES] for m in range(problem.clients)]
        self.nets = [(party.embedding.module, party.predictor.module) for party in parties]
        self.optimizers = [torch.optim.SGD([*h.parameters(), *p.parameters()], lr=RATE.lr) for h, p in self.nets]

    def run(self, rounds: int) -> None:
        """Rounds."""
        loss_of, parties = nn.CrossEntropyLoss(), len(self.nets)
        for _ in range(rounds):
            ids = self.problem.batches.batch(self.round).tensor(self.problem.device)
            self.round += 1
            y = self.problem.y[ids]
            h = [embed(x[ids]) for (embed, _), x in zip(self.nets, self.x, strict=True)]
            mean = torch.stack([each.detach() for each in h]).mean(0)
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            for (_, predict), own in zip(self.nets, h, strict=True):
                leaf = mean.clone().requires_grad_()
                loss_of(predict(leaf), y).backward()
                assert leaf.grad is not None, "the loss depends on it"
                own.backward(leaf.grad / parties)
            for optimizer in self.optimizers:
                optimizer.step()


def _from(party: int, message: Message) -> Message:
    message.sender = party
    return message


def compare(parties: int, rounds: int) -> dict[str, float]:
    """Milliseconds a round of all contenders."""
    problem = Problem(parties)
    found = milliseconds(
        {
            "plain": Plain(problem).run,
            "vflsim": Plane(problem, eager=False).run,
            "eager": Plane(problem, eager=True).run,
        },
        rounds,
    )
    plain, vflsim, eager = found.values()
    print(
        f"{parties:4} parties: plain {plain:7.2f} ms, vflsim {vflsim:7.2f}, eager {eager:7.2f}"
        f"; plain/vflsim {plain / vflsim:.2f}, eager/vflsim {eager / vflsim:.2f}",
        flush=True,
    )
    return found


def main() -> None:
    """Everything, printed as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parties", type=int, nargs="+", default=(4, 10, 28, 64))
    parser.add_argument("--rounds", type=int, default=20)
    said = parser.parse_args()
    torch.set_num_threads(1)
    with patient_collector():
        for count in said.parties:
            compare(count, said.rounds)


if __name__ == "__main__":
    main()
