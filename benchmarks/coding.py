"""How fast coded computing is: products of matrices over F_p, and encoding and decoding Lagrange shares.

Two threads, for everything that is compared. The contenders take turns, each with the same matrices; times are medians,
in wall-clock milliseconds, and ratios are of medians of one run: they are what carries over to another machine.
Run: OMP_WAIT_POLICY=passive python benchmarks/coding.py (else threads that wait for each other spin, which on a busy
machine takes longer than the work)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import flint
import numpy as np
import torch

from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField
from vflsim.coding.lagrange import LagrangeCode
from vflsim.coding.quantise import Quantiser
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.client import ClientParts, Split
from vflsim.learning.learners.server import ServerParts
from vflsim.learning.models.aggregates import MeanAggregate
from vflsim.learning.models.build import seeded
from vflsim.learning.models.client import LinearClient
from vflsim.learning.models.server import MlpServer
from vflsim.learning.optimizers import Sgd
from vflsim.learning.tasks import task_of
from vflsim.learning.training import Training
from vflsim.protocols.fedvs.client import CodedClientLearner
from vflsim.protocols.fedvs.learners import CodedServerLearner
from vflsim.protocols.fedvs.plan import CodingPlan, SegmentedBatch, SegmentedBatches

THREADS = 2
REPEATS = 31
PRODUCT = (1024, 512, 512)
SEGMENTS, MASKS = 8, 1
DATA, MODEL, RESULT = (7500, 28), (28, 64), (32, 64)
"""A client's rows of a segment, its model, and a batch of results, for FashionMNIST in 28 columns of 28 pixels."""


def medians(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds that each takes, all of them taking turns after a first time that does not count."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(1 + REPEATS):
        for name, call in contenders.items():
            began = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def products(p: int) -> None:
    """A matrix product over F_p against python-flint's and against one of float64."""
    field, bits, (n, k, m) = PrimeField(p), np.random.Philox(0), PRODUCT
    a, b = field.uniform((n, k), bits), field.uniform((k, m), bits)
    left, right = flint.nmod_mat(n, k, a.flatten().tolist(), p), flint.nmod_mat(k, m, b.flatten().tolist(), p)
    x, y = a.double(), b.double()
    took = medians({"field": lambda: field.matmul(a, b), "flint": lambda: left * right, "float64": lambda: x @ y})
    print(
        f"product {n}x{k}x{m}, p = 2^{p.bit_length()} - 1: {took['field']:7.2f} ms;"
        f" flint {took['flint']:7.2f} ms, {took['flint'] / took['field']:.2f} times as long;"
        f" float64 {took['float64']:6.2f} ms, {took['field'] / took['float64']:.2f} of them"
    )


def code(p: int, shares: int) -> None:
    """Encoding a client's data and its model, and decoding a round's results, against bare float64 products."""
    field, bits = PrimeField(p), np.random.Philox(0)
    code = LagrangeCode(field, SEGMENTS, MASKS, shares)
    threshold = code.threshold()
    coded = SEGMENTS + MASKS
    data, model = field.uniform((coded, *DATA), bits), field.uniform(MODEL, bits)
    masks, results = field.uniform((MASKS, *MODEL), bits), field.uniform((threshold, *RESULT), bits)
    holders = range(shares - threshold, shares)
    matrix, secrets = torch.ones(shares, coded, dtype=torch.float64), data.flatten(1).double()
    took = medians(
        {
            "data": lambda: code.encode(data),
            "float64": lambda: matrix @ secrets,
            "model": lambda: code.encode_repeated(model, masks),
            "decode": lambda: code.decode(results, holders),
        }
    )
    print(
        f"K = {SEGMENTS}, T = {MASKS}, N = {shares:3}, p = 2^{p.bit_length()} - 1:"
        f" data {_by(DATA)} a segment {took['data']:6.1f} ms, {took['data'] / took['float64']:.2f} float64 products;"
        f" model {_by(MODEL)} {took['model']:.2f} ms; {threshold} results {_by(RESULT)} {took['decode']:.2f} ms"
    )


def round_of_fedvs(clients: int) -> None:
    """A whole round as a run does it (sharing, answers, decoding, all steps), against its products over F_p alone."""
    learners, server, batches = _learners(clients)
    plan, numbers = server.plan, count()

    def whole() -> None:
        k = next(numbers)
        batch = batches.batch(k)
        assert isinstance(batch, SegmentedBatch)
        models = {client: _done(learner.share_model(k)) for client, learner in learners.items()}
        answers = []
        for client in list(learners)[: plan.threshold]:
            shares = {owner: models[owner][client] for owner in learners}
            answers.append(_Message(client, _done(learners[client].coded_embed(batch, shares))))
        decoded = _done(server.decode(batch, answers, list(learners)))
        gradient = _done(server.coded_step(batch, decoded, list(learners)[: plan.threshold], list(learners)))
        for learner in learners.values():
            _done(learner.client_step(batch, _Message(0, gradient)))

    field, bits = plan.quantiser.field, np.random.Philox(0)
    (places, width), columns, code = RESULT, sum(plan.columns.values()), plan.code
    rows = field.uniform((SEGMENTS + MASKS, places, DATA[1]), bits)
    model, masks = field.uniform(MODEL, bits), field.uniform((MASKS, *MODEL), bits)
    x, w = field.uniform((places, columns), bits), field.uniform((columns, width), bits)
    results, holders = field.uniform((plan.threshold, *RESULT), bits), range(plan.threshold)

    def floor() -> None:
        for _ in learners:
            code.encode(rows, holders)
            code.encode_repeated(model, masks, holders)
        for _ in holders:
            field.matmul(x, w)
        code.decode(results, holders)

    took = medians({"round": whole, "floor": floor})
    print(
        f"a round of {clients} clients, K = {SEGMENTS}, T = {MASKS}, R = {plan.threshold}: {took['round']:.1f} ms, "
        f"{took['round'] / took['floor']:.2f} times its {took['floor']:.1f} ms of products over F_p"
    )


@dataclass(frozen=True)
class _Message:
    """As much of a message as learners look at."""

    sender: int
    value: Any


def _done(operation: Operation[Any]) -> Any:
    operation.run()
    if operation.commit is not None:
        operation.commit()
    return operation.result


def _learners(clients: int) -> tuple[dict[int, CodedClientLearner], CodedServerLearner, SegmentedBatches]:
    """Clients with random features, their data shared, and a server."""
    (height, width), (_, embedding), batch = DATA, MODEL, SEGMENTS * RESULT[0]
    rows, parties, sgd = SEGMENTS * height // 10, range(1, clients + 1), Sgd(lr=0.01)
    plan = CodingPlan(
        code=LagrangeCode(PrimeField(), SEGMENTS, MASKS, clients),
        quantiser=Quantiser(PrimeField(), 6, 10),
        columns=dict.fromkeys(parties, width),
        row_bounds=dict.fromkeys(parties, 2**13),
        weight_bound=4.0,
        rows=rows,
        batch=batch,
        embedding=embedding,
        arithmetic="coded",
        seed=0,
    )
    draw = torch.Generator().manual_seed(0)
    learners = {}
    for client in parties:
        features: dict[Split, torch.Tensor] = {"train": torch.rand((rows, width), generator=draw)}
        build = partial(
            seeded, partial(LinearClient(embedding=embedding, bias=False).build, (width,)), client, torch.float32
        )
        parts = ClientParts(client, features, build, sgd, embedding, batch)
        learners[client] = CodedClientLearner(parts, plan, powers=1, bias=False)
    labels: dict[Split, torch.Tensor] = {"train": torch.randint(10, (rows,), generator=draw)}
    top = partial(seeded, partial(MlpServer(hidden=(128, 64)).build, embedding, 10), 0, torch.float32)
    widths = (embedding,) * clients
    server = CodedServerLearner(
        ServerParts(
            tuple(parties), widths, labels, top, sgd, MeanAggregate(), task_of("multiclass"), batch, torch.float32
        ),
        plan,
    )
    given = {client: _done(learner.share_data()) for client, learner in learners.items()}
    for receiver, learner in learners.items():
        for sender, shares in given.items():
            if sender != receiver:
                learner.keep(_Message(sender, shares[receiver]))
    training = Training(batch=batch, client_optimizer=sgd, server_optimizer=sgd, last_batch="drop")
    return learners, server, SegmentedBatches(rows, SEGMENTS, training, seed=0)


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def main() -> None:
    torch.set_num_threads(THREADS)
    flint.ctx.threads = THREADS
    print(f"{THREADS} threads, medians of {REPEATS}")
    for p in (MERSENNE_31, MERSENNE_61):
        products(p)
    for p in (MERSENNE_31, MERSENNE_61):
        for shares in (28, 100):
            code(p, shares)
    for clients in (28, 100):
        round_of_fedvs(clients)


if __name__ == "__main__":
    main()
