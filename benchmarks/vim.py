"""How fast protocols with linear heads train: an epoch of each on MNIST, as scenarios/vim/stragglers.yaml has it.

Each is measured three times: by vflsim's learning plane ("vflsim"); by a plain loop over client modules, with autograd
and an optimiser for each ("loop"); and as the bare stacked matrix products of the same shapes, into tensors that exist
already ("floor"). They take turns in blocks of rounds. Times are medians over blocks, in wall-clock seconds, scaled to
an epoch; ratios are medians over blocks, too, of wall-clock and, in brackets, of processor time, which a busy machine
changes less. Loops start from the same weights, and both last losses are printed. ADMM's local phase and its z-step
are also timed by themselves, and so is the timing plane.
Run: OMP_WAIT_POLICY=passive VFLSIM_DATA=… python benchmarks/vim.py [--batch 1024] [--protocols vimsgd vimadmm …]
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import vflsim
from vflsim.learning.batches import Batch, BatchSequence
from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.learning.execution.operations import Operation
from vflsim.learning.tasks import MULTICLASS
from vflsim.protocols.vim import admm as duals_module
from vflsim.protocols.vim.admm import lagrangian, proximal
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, setting
from vflsim.simulation.collector import patient_collector
from vflsim.simulation.run import run_protocol
from vflsim.streams import SERVER
from vflsim.world.messages import Embedding, Message

THREADS, BLOCKS = 2, 7
CONTENDERS = "vflsim", "loop", "floor"
SCENARIO = Path(__file__).parents[1] / "scenarios" / "vim" / "stragglers.yaml"
ROUNDS = {"wait": 6, "vimsgd": 6, "fdml": 6, "vimadmm": 1, "vimadmm-j": 1}
"""Rounds of a block. ``wait`` is synchronous training: VAFL with the same models."""


def now(what: str) -> dict[str, float]:
    """Wall-clock time, and processor time, of something."""
    return {what: time.perf_counter(), f"{what}, processor": time.process_time()}


class Clock:
    """Seconds spent in parts of a round."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, what: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``work``, with its time noted."""

        def run(*given: Any, **named: Any) -> Any:
            began = now(what)
            result = work(*given, **named)
            for which, end in now(what).items():
                self.seconds[which] = self.seconds.get(which, 0.0) + end - began[which]
            return result

        return run


class Plane:
    """The operations of a protocol's rounds, batched, without its timing plane."""

    def __init__(self, scenario: Scenario, name: str, data: Any) -> None:
        protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
        self.learners = protocol.learners(resolved, 0)
        assert self.learners.stack(resolved, protocol.traits.table) == []
        self.sequence = BatchSequence(data.rows, resolved.training, 0, SERVER)
        self.steps = getattr(protocol, "local_steps", 1)
        self.executor, self.round, self.loss, self.clock = DeferredExecutor(), 0, 0.0, Clock()

    def run(self, rounds: int) -> None:
        """Synchronous rounds."""
        for _ in range(rounds):
            batch = self.sequence.batch(self.round)
            self.round += 1
            sent = [self._sent(m, batch, each) for m, each in self.learners.clients.items()]
            step = self._done(self.learners.server.server_step(sent))
            self.loss = self.executor.force(step.loss)
            self.clock.timed("local", self._steps)(batch, step, sent)

    def _steps(self, batch: Batch, step: Any, sent: Sequence[Message]) -> None:
        for m, message in zip(self.learners.clients, sent, strict=True):
            if hasattr(step, "variables_for"):
                received = step.variables_for(m)
            else:
                received = Message(value=step.gradient_for(message))
            for _ in range(self.steps):
                self._done(self.learners.clients[m].client_step(batch, received))
        self.executor.flush()

    def _sent(self, m: int, batch: Batch, learner: Any) -> Message:
        message = Embedding(batch, self._done(learner.embed(batch)))
        message.sender = m
        return message

    def _done(self, operation: Operation[Any]) -> Any:
        self.executor.submit(operation)
        if operation.commit is not None:
            operation.commit()
        return operation.result


class Loop:
    """The same protocol in plain PyTorch: a module, an optimiser and a backward pass a client."""

    def __init__(self, scenario: Scenario, name: str, data: Any, plane: Plane) -> None:
        self.name, self.kind = name, scenario.protocols[name].protocol.kind
        training, clients = scenario.training_of(name), plane.learners.clients
        self.sequence, self.round, self.loss = plane.sequence, 0, 0.0
        self.x, self.y = [data.features[m - 1]["train"] for m in clients], data.labels["train"]
        self.models = [copy.deepcopy(learner.model) for learner in clients.values()]
        if hasattr(plane.learners.server, "top"):
            whole = plane.learners.server.top.module.state_dict()["weight"].clone()
            parts = torch.split(whole, [learner.width for learner in clients.values()], dim=1)
        else:
            parts = [learner.head.module.state_dict()["weight"].clone() for learner in clients.values()]
        self.heads = [nn.Parameter(part.clone()) for part in parts]
        self.rules = [training.client_optimizer.build(model.parameters()) for model in self.models]
        self.head_rules = [training.server_optimizer.build([head]) for head in self.heads]
        protocol = scenario.protocols[name].protocol
        self.steps, self.rho = getattr(protocol, "local_steps", 1), getattr(protocol, "rho", 0.0)
        self.duals, self.z = torch.zeros(2, len(self.y), data.outputs)
        self.run_one = {"synchronous": self._split, "vimsgd": self._heads_first, "fdml": self._split}.get(
            self.kind, self._admm
        )

    def run(self, rounds: int) -> None:
        """So many rounds."""
        for _ in range(rounds):
            ids = self.sequence.batch(self.round).tensor()
            self.round += 1
            self.run_one(ids, [x[ids] for x in self.x], self.y[ids])

    def _split(self, ids: Tensor, x: list[Tensor], y: Tensor) -> None:
        """VAFL's and FDML's updates are the same: they differ in where the heads are."""
        h = [model(own) for model, own in zip(self.models, x, strict=True)]
        sent = [each.detach().requires_grad_() for each in h]
        self._backward(sent, y, [*self.rules, *self.head_rules])
        self._step_clients(h, sent)
        for rule in self.head_rules:
            rule.step()

    def _heads_first(self, ids: Tensor, x: list[Tensor], y: Tensor) -> None:
        h = [model(own) for model, own in zip(self.models, x, strict=True)]
        self._backward([each.detach() for each in h], y, self.head_rules)
        for rule in self.head_rules:
            rule.step()
        sent = [each.detach().requires_grad_() for each in h]
        last = self.loss
        self._backward(sent, y, [*self.rules, *self.head_rules])
        self.loss = last
        self._step_clients(h, sent)

    def _backward(self, sent: Sequence[Tensor], y: Tensor, rules: Sequence[torch.optim.Optimizer]) -> None:
        logits = [functional.linear(own, head) for own, head in zip(sent, self.heads, strict=True)]
        loss = functional.cross_entropy(torch.stack(logits).sum(0), y)
        for rule in rules:
            rule.zero_grad()
        loss.backward()
        self.loss = loss.item()

    def _step_clients(self, h: Sequence[Tensor], sent: Sequence[Tensor]) -> None:
        for each, leaf in zip(h, sent, strict=True):
            each.backward(leaf.grad)
        for rule in self.rules:
            rule.step()

    def _admm(self, ids: Tensor, x: list[Tensor], y: Tensor) -> None:
        """VIMADMM with the residuals of the heads before the step, and VIMADMM-J."""
        with torch.no_grad():
            h = [model(own) for model, own in zip(self.models, x, strict=True)]
            parts = [functional.linear(own, head) for own, head in zip(h, self.heads, strict=True)]
            a = torch.stack(parts).sum(0)
            self.loss = float(functional.cross_entropy(a, y))
            z = proximal(MULTICLASS, y, a, self.duals[ids], self.rho, self.z[ids])
            duals = self.duals[ids] + self.rho * (a - z)
            self.z[ids], self.duals[ids] = z, duals
            residuals = [z - a + part for part in parts]
        if self.kind == "vimadmm":
            self._down(lagrangian(sum(map(functional.linear, h, self.heads)), duals, z, self.rho), self.head_rules)
        for model, rule, own, head, head_rule, residual in zip(
            self.models, self.rules, x, self.heads, self.head_rules, residuals, strict=True
        ):
            for _ in range(self.steps):
                embedded = model(own)
                if self.kind == "vimadmm_j":
                    logits = functional.linear(embedded.detach(), head)
                    self._down(lagrangian(logits, duals, residual, self.rho), [head_rule])
                logits = functional.linear(embedded, head.detach())
                self._down(lagrangian(logits, duals, residual, self.rho), [rule])

    @staticmethod
    def _down(loss: Tensor, rules: Sequence[torch.optim.Optimizer]) -> None:
        for rule in rules:
            rule.zero_grad()
        loss.backward()
        for rule in rules:
            rule.step()


class Floor:
    """The matrix products of a protocol's round, batched over the clients, into tensors that are there already."""

    def __init__(self, loop: Loop, rows: int) -> None:
        sizes = [tuple(layer.weight.shape) for layer in loop.models[0] if isinstance(layer, nn.Linear)]
        clients, outputs, width = len(loop.models), loop.heads[0].shape[0], loop.heads[0].shape[1]
        self.loop = loop
        self.forward = [self._product(clients, rows, i, o) for o, i in sizes]
        self.backward = [self._product(clients, i, rows, o) for o, i in sizes]
        self.backward += [self._product(clients, rows, o, i) for o, i in sizes[1:]]
        self.head = [self._product(clients, rows, width, outputs)]
        self.by_head = [self._product(clients, width, rows, outputs)]
        self.by_h = [self._product(clients, rows, outputs, width)]

    @staticmethod
    def _product(clients: int, rows: int, inner: int, columns: int) -> Callable[[], Tensor]:
        one, other = torch.rand(clients, rows, inner), torch.rand(clients, inner, columns)
        result = torch.empty(clients, rows, columns)
        return lambda: torch.bmm(one, other, out=result)

    def run(self, rounds: int) -> None:
        """So many rounds."""
        kind = self.loop.kind
        for _ in range(rounds):
            if self.loop.rho:
                self._all(self.forward + self.head + (self.by_head if kind == "vimadmm" else []))
                self.local()
            else:
                again = self.by_head + self.head if kind == "vimsgd" else self.by_head
                self._all(self.forward + self.head + again + self.by_h + self.backward)

    def local(self) -> None:
        """The products of a round's local steps."""
        heads = [*self.head, *self.by_head, *self.head] if self.loop.kind == "vimadmm_j" else self.head
        for _ in range(self.loop.steps):
            self._all(self.forward + heads + self.by_h + self.backward)

    @staticmethod
    def _all(products: Sequence[Callable[[], Tensor]]) -> None:
        for product in products:
            product()


def measured(plane: Plane, loop: Loop, floor: Floor, rounds: int) -> dict[str, list[float]]:
    """Seconds a round of every block but the first, by contender; also of VIMADMM's local phase and z-step."""
    times: dict[str, list[float]] = {}
    floor_clock = Clock()
    contenders = dict(zip(CONTENDERS, (plane.run, loop.run, floor.run), strict=True))
    floor.local = floor_clock.timed("local", floor.local)  # type: ignore[method-assign]
    for block in range(1 + BLOCKS):
        plane.clock.seconds.clear()
        floor_clock.seconds.clear()
        for name, run in contenders.items():
            began = now(name)
            run(rounds)
            seconds = {which: end - began[which] for which, end in now(name).items()}
            if name == "vflsim":
                seconds |= plane.clock.seconds
            elif name == "floor":
                seconds |= {f"floor of {what}": each for what, each in floor_clock.seconds.items()}
            for what, each in seconds.items() if block else ():
                times.setdefault(what, []).append(each / rounds)
    return times


def ratio(times: Mapping[str, Sequence[float]], one: str, other: str) -> float:
    """The median over blocks."""
    return statistics.median(a / b for a, b in zip(times[one], times[other], strict=True))


def ratios(times: Mapping[str, Sequence[float]], one: str, other: str) -> str:
    """The medians of wall-clock and of processor time."""
    both = ratio(times, one, other), ratio(times, f"{one}, processor", f"{other}, processor")
    return f"{one}/{other} {both[0]:.3g} ({both[1]:.3g})"


def report(scenario: Scenario, name: str, data: Any) -> None:
    """Measure one protocol, and print it."""
    plane = Plane(scenario, name, data)
    loop = Loop(scenario, name, data, plane)
    duals_module.proximal = plane.clock.timed("z-step", proximal)
    times = measured(plane, loop, Floor(loop, plane.sequence.size), ROUNDS[name])
    epoch = plane.sequence.per_epoch
    each = {what: epoch * statistics.median(seconds) for what, seconds in times.items()}
    pairs = ("loop", "vflsim"), ("vflsim", "floor"), ("loop", "floor")
    print(
        f"{name:9} epoch of {epoch} rounds: "
        + ", ".join(f"{what} {each[what]:.2f} s ({each[f'{what}, processor']:.2f})" for what in CONTENDERS)
        + f"; {', '.join(ratios(times, *pair) for pair in pairs)}; last losses {plane.loss:.4f}, {loop.loss:.4f}",
        flush=True,
    )
    if "z-step" in times:
        print(
            f"{'':9} {ratios(times, 'local', 'floor of local')}, {ratios(times, 'local', 'vflsim')}, "
            f"{ratios(times, 'z-step', 'vflsim')}",
            flush=True,
        )
    began = time.process_time()
    run_protocol(scenario, name, 0, data, timing_only=True)
    print(f"{'':9} timing plane of an epoch: {time.process_time() - began:.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--protocols", nargs="+", choices=ROUNDS, default=list(ROUNDS))
    said = parser.parse_args()
    torch.set_num_threads(THREADS)
    rounds = -(-60_000 // said.batch)
    scenario = vflsim.load(
        SCENARIO,
        {"training.batch": said.batch, "stop": {"rounds": rounds}, "evaluate": {"every": f"{rounds} rounds"}},
    )
    data = ScenarioData(scenario).of(scenario.training)
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{THREADS} threads, medians of {BLOCKS} blocks, PyTorch {torch.__version__}, load average {load}")
    with patient_collector():  # as in every run
        for name in said.protocols:
            report(scenario, name, data)


if __name__ == "__main__":
    main()
