"""Decide which clients are computed together, and how. The table rests on measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

from vflsim.learning.batches import Split
from vflsim.learning.batching.products import LayeredStack, ProductStack
from vflsim.learning.batching.stack import Stack
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.inputs import StackedFeatures
from vflsim.learning.models.aggregates import Aggregate, MeanAggregate, SumAggregate
from vflsim.learning.models.client import (
    ClientModel,
    CnnClient,
    DeepFmClient,
    LenetClient,
    LinearClient,
    MlpClient,
    ModuleClient,
    PolynomialClient,
    Resnet18Client,
    WideDeepClient,
)
from vflsim.learning.optimizers import STACKED, Optimizer
from vflsim.vocabulary.on_demand import Tensor

KERNELS: dict[type[ClientModel], type[Stack] | str] = {
    LinearClient: ProductStack,
    PolynomialClient: ProductStack,
    MlpClient: LayeredStack,
    CnnClient: "convolutions are slower together than one by one",
    LenetClient: "convolutions are slower together than one by one",
    Resnet18Client: "convolutions are slower together than one by one",
    DeepFmClient: "no stack reads codes of categories",
    WideDeepClient: "no stack reads codes of categories",
    ModuleClient: "a user's module may treat rows or clients in ways that no stack can know",
}
"""The stack that computes clients of a kind of model together, or the reason why there is none."""
PER_STACK = 300
"""The cost of another stack, in columns of features that could as well be padding."""


def stack_clients(
    learners: Mapping[int, ClientLearner],
    models: Mapping[int, ClientModel],
    joint: Mapping[Split, Tensor],
    columns: Mapping[int, slice],
    aggregate: Aggregate,
    table: bool,
) -> list[str]:
    """Stack the learners that can be stacked, and return, in words, the others and the reasons.

    All are keyed by client; ``joint`` and ``columns`` are the features (``StackedFeatures``). If the aggregate is a sum
    or mean, and no ``table`` (or dropout of parties) needs every row, then for clients that hold all rows and send
    unprotected embeddings, only the sum is computed. For blinded clients this applies in evaluation only. Clients of a
    stack have the same model and the same optimiser.
    """
    groups: dict[tuple[ClientModel, Optimizer], list[int]] = {}
    others: Counter[str] = Counter()
    for client in learners:
        model = models[client]
        why = KERNELS[type(model)]
        mechanism = learners[client].parts.mechanism
        if mechanism is not None and mechanism.inner_noise and model.powers is None:
            why = "their mechanism adds noise inside the network"
        if not isinstance(why, str) and learners[client].parts.coded:
            why = "no stack reads codes of categories"
        if not isinstance(why, str) and type(learners[client].parts.optimizer) not in STACKED:
            why = "their optimiser is not vflsim's own"
        if isinstance(why, str):
            others[f"{model.kind} clients one by one: {why}"] += 1
        else:
            groups.setdefault((model, learners[client].parts.optimizer), []).append(client)
    sums = isinstance(aggregate, MeanAggregate | SumAggregate)
    for (model, _), clients in groups.items():
        kind = KERNELS[type(model)]
        assert not isinstance(kind, str)
        sums_only = sums and all(map(whole, (learners[client] for client in clients)))
        for some in cut(clients, {client: columns[client].stop - columns[client].start for client in clients}):
            features = StackedFeatures(joint, [columns[client] for client in some])
            training = sums_only and not table and all(learners[client].blinder is None for client in clients)
            kind([learners[client] for client in some], features, training, sums_only)
    return [f"{count} {what}" for what, count in others.items()]


def whole(learner: ClientLearner) -> bool:
    """Whether a client holds all rows, and releases its embeddings as they are."""
    return learner.releases is None and learner.parts.present is None


def evaluated_as_sum(learner: ClientLearner, model: ClientModel, aggregate: Aggregate) -> bool:
    """Whether evaluation computes a client's embeddings only as a part of a sum."""
    stacked = not isinstance(KERNELS[type(model)], str) and not learner.parts.coded
    stacked = stacked and type(learner.parts.optimizer) in STACKED
    return stacked and isinstance(aggregate, MeanAggregate | SumAggregate) and whole(learner)


def trained_as_sum(learner: ClientLearner, model: ClientModel, aggregate: Aggregate, table: bool) -> bool:
    """Whether training, too, computes a client's embeddings only as a part of a sum; ``table`` as above."""
    return evaluated_as_sum(learner, model, aggregate) and not table and learner.blinder is None


def cut(clients: Sequence[int], widths: Mapping[int, int]) -> list[list[int]]:
    """Clients in stacks, each in client order: padding narrow ones is traded against more stacks (``PER_STACK``).

    Of clients sorted by width the best stacks are runs, so the best end of each run is found from the left. Equally
    wide clients are in the same run, since padding costs them nothing there.
    """
    alike: dict[int, list[int]] = {}
    for client in clients:
        alike.setdefault(widths[client], []).append(client)
    order = sorted(alike)
    before = [0, *accumulate(len(alike[width]) for width in order)]
    best: list[tuple[int, int]] = [(0, 0)]  # the least cost of the first n widths, and where the last run begins
    for end, width in enumerate(order, start=1):
        costs = (best[begin][0] + (before[end] - before[begin]) * width + PER_STACK for begin in range(end))
        best.append(min((cost, begin) for begin, cost in enumerate(costs)))
    stacks: list[list[int]] = []
    end = len(order)
    while end:
        begin = best[end][1]
        stacks.append(sorted(client for width in order[begin:end] for client in alike[width]))
        end = begin
    return sorted(stacks)
