"""Stacks on their own: clients computed together beside twins that are computed one by one, through random events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from thorough import examples
from torch import Tensor

from vflsim.errors import BudgetError, NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.batching.kernels import KERNELS
from vflsim.learning.batching.stack import Stack
from vflsim.learning.execution.operations import Handle, Operation, run_together
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.inputs import StackedFeatures
from vflsim.learning.learners.joint import total_of
from vflsim.learning.models.build import seeded
from vflsim.learning.models.client import ClientModel, LinearClient, MlpClient, PolynomialClient
from vflsim.learning.optimizers import Adam, Optimizer, Sgd
from vflsim.learning.privacy.mechanisms import Gaussian

ROWS, LONG, WIDTH = 12, 3, 3


MODELS: dict[str, ClientModel] = {
    "linear": LinearClient(embedding=WIDTH),
    "unbiased": LinearClient(embedding=WIDTH, bias=False),
    "polynomial": PolynomialClient(embedding=WIDTH, degree=3),
    "unbiased polynomial": PolynomialClient(embedding=WIDTH, degree=2, bias=False),
    "mlp": MlpClient(embedding=WIDTH, hidden=(4,)),
    "deep": MlpClient(embedding=WIDTH, hidden=(4, 5), activation="gelu"),
    "rectified": MlpClient(embedding=WIDTH, hidden=(4,), output_activation="relu"),
}
LAYOUTS = {"even": [2, 2, 2, 2], "ragged": [3, 1, 4, 2]}
RULES: dict[str, Optimizer] = {"sgd": Sgd(lr=0.1, momentum=0.5, weight_decay=0.1), "adam": Adam(lr=0.05)}
BOUND = Gaussian(clip=0.5, delta=1e-5, noise_multiplier=0.5)


@dataclass(frozen=True)
class Pull:
    """∂L/∂h of the distance to a target, L = strength · ‖h − target‖² / 2."""

    strength: float

    def __call__(self, h: Tensor, target: Tensor) -> Tensor:
        return self.strength * (h - target)


models = pytest.mark.parametrize("model", MODELS)
layouts = pytest.mark.parametrize("layout", LAYOUTS)


@dataclass
class Message:
    value: Any


def given_to(value: Tensor) -> Message:
    handle: Handle[Tensor] = Handle(tuple(value.shape), value.dtype)
    handle.set(value)
    return Message(handle)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(index: int, client: int = -1) -> Batch:
    """Three rows that follow from which batch it is, and whose (-1: everybody's)."""
    ids = np.random.default_rng([index, client + 1]).permutation(ROWS)[:LONG]
    return Batch(index, ids.astype(np.int64), client)


class Twins:
    """The same clients twice: ``together`` in one stack, ``alone`` each by itself. Parties count from 1."""

    def __init__(
        self,
        model: str,
        layout: str = "even",
        joint: bool = False,
        rule: str = "sgd",
        mechanism: Gaussian | None = None,
        features: Tensor | None = None,
    ) -> None:
        widths = LAYOUTS[layout]
        edges = np.cumsum([0, *widths])
        train = drawn(1, ROWS, edges[-1]) if features is None else features
        matrix = {"train": train, "test": drawn(2, 5, edges[-1])}
        columns = [slice(int(a), int(b)) for a, b in pairwise(edges)]

        def learners() -> list[ClientLearner]:
            return [
                ClientLearner(
                    ClientParts(
                        m,
                        {split: whole[:, own] for split, whole in matrix.items()},
                        partial(seeded, partial(MODELS[model].build, (widths[m - 1],)), 7 + m, torch.float64),
                        RULES[rule],
                        WIDTH,
                        batch=LONG,
                        mechanism=mechanism,
                        seed=3,
                    )
                )
                for m, own in enumerate(columns, start=1)
            ]

        self.together, self.alone = learners(), learners()
        kind = next(kind for known, kind in KERNELS.items() if isinstance(MODELS[model], known))
        assert not isinstance(kind, str)
        self.stack: Stack = kind(self.together, StackedFeatures(matrix, columns), joint, joint)

    def both(self, made: Any, places: Sequence[int]) -> list[tuple[Any, Any]]:
        """Let the clients at ``places`` do ``made(learner, place)``: together, and one by one; their results."""
        ours: list[Operation[Any]] = [made(self.together[place], place) for place in places]
        theirs: list[Operation[Any]] = [made(self.alone[place], place) for place in places]
        for operation in ours:
            operation.at = 4, operation.party / 2
        assert len({id(operation.kernel) for operation in ours}) == 1
        run_together(ours)
        for operation in theirs:
            operation.run()
        return [(one.result, other.result) for one, other in zip(ours, theirs, strict=True)]

    def apart(self) -> float:
        """The largest difference between the clients' weights and their twins'."""
        return max(
            float((one - other).abs().max())
            for ours, theirs in zip(self.together, self.alone, strict=True)
            for one, other in zip(ours.model.state_dict().values(), theirs.model.state_dict().values(), strict=True)
        )

    def padding(self) -> list[Tensor]:
        """Whatever lies in the stack's first layer beside what the clients' models see."""
        stacked = self.stack.parameters[0]
        before = stacked.clone()
        for learner in self.together:
            next(learner.model.parameters()).data.fill_(torch.nan)
        seen = stacked.isnan()
        stacked.copy_(before)
        memory = [tensors[0] for tensors in self.stack.optimizer.memory.values()]
        return [each[~seen] for each in (stacked, *memory)]


def near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-12, atol=1e-12)


def stepped(twins: Twins, places: Sequence[int], batches: Sequence[Batch], received: Sequence[Tensor]) -> None:
    messages = {place: given_to(value) for place, value in zip(places, received, strict=True)}
    of = dict(zip(places, batches, strict=True))
    twins.both(lambda learner, place: learner.client_step(of[place], messages[place]), places)


def pulled(twins: Twins, places: Sequence[int], batches: Sequence[Batch], targets: Sequence[Tensor]) -> None:
    """Take a local step each."""
    received = {place: given_to(value).value for place, value in zip(places, targets, strict=True)}
    of = dict(zip(places, batches, strict=True))
    twins.both(lambda learner, place: learner.local_step(of[place], Pull(0.02), [received[place]], 0.0), places)


# --- whatever happens -----------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["embed", "embed", "step", "step", "local", "answer", "evaluate", "read"]),
        st.sets(st.integers(0, 3), min_size=1).map(sorted) | st.just([0, 1, 2, 3]),
        st.booleans(),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.sampled(3)
@models
@pytest.mark.parametrize(
    ("layout", "joint", "mechanism"),
    [("even", True, None), ("ragged", True, None), ("even", False, None), ("ragged", False, BOUND)],
    ids=["even sums", "ragged sums", "even rows", "ragged bounded"],
)
@settings(max_examples=examples(6))
@given(events=EVENTS, rule=st.sampled_from(list(RULES)))
def test_clients_computed_together_are_their_twins(
    model: str, layout: str, joint: bool, mechanism: Gaussian | None, events: list[Any], rule: str
) -> None:
    """Embeddings are read at once, later, or after the weights have moved on: each alone, or their sum."""
    twins = Twins(model, layout, joint, rule, mechanism)
    waiting: dict[int, Batch] = {}
    seen: list[list[tuple[Handle[Tensor], Handle[Tensor]]]] = []
    for kind, places, same, index in events:
        if kind == "embed":
            of = {place: batch(index, -1 if same else place) for place in places}
            seen.append(twins.both(lambda learner, place, of=of: learner.embed(of[place]), places))
            waiting |= of
        elif kind == "step" and (stepping := [place for place in places if place in waiting]):
            shared = drawn(index, LONG, WIDTH)
            received = [shared if same else drawn(10 * index + place, LONG, WIDTH) for place in stepping]
            stepped(twins, stepping, [waiting.pop(place) for place in stepping], received)
        elif kind == "local":
            batches, shared = [batch(index, -1 if same else place) for place in places], drawn(index, LONG, WIDTH)
            targets = [shared if same else drawn(10 * index + place, LONG, WIDTH) for place in places]
            pulled(twins, places, batches, targets)
        elif kind == "answer":
            seen.append(twins.both(lambda learner, place, k=index: learner.answer(batch(k)), places))
        elif kind == "evaluate":
            seen.append(twins.both(lambda learner, place: learner.embed_split("test"), places))
        elif seen:
            results = seen[index % len(seen)]
            some = [results[place % len(results)] for place in places] if same else results
            some = list(dict.fromkeys(some))
            assert near(total_of([one for one, _ in some]), sum(other.value for _, other in some))
    for results in seen:
        assert near(total_of([one for one, _ in results]), sum(other.value for _, other in results))
        assert all(near(one.value, other.value) for one, other in results)
    assert twins.apart() <= 1e-12
    assert all((each == 0).all() for each in twins.padding())


# --- one thing at a time --------------------------------------------------------------------------------------------


@pytest.mark.sampled(5)
@models
@layouts
def test_stacking_moves_no_weight_and_the_models_look_into_the_stack(model: str, layout: str) -> None:
    twins = Twins(model, layout)
    assert twins.apart() == 0
    for parameter in twins.stack.parameters:
        parameter += 1
    assert twins.apart() == pytest.approx(1)


@pytest.mark.sampled(5)
@models
@layouts
def test_whoever_does_not_step_keeps_every_bit(model: str, layout: str) -> None:
    twins = Twins(model, layout)
    stepped(twins, [0, 1, 2, 3], [batch(0)] * 4, [drawn(n, LONG, WIDTH) for n in range(4)])
    before = [parameter.clone() for parameter in twins.stack.parameters]
    stepped(twins, [1, 3], [batch(1), batch(2)], [drawn(n, LONG, WIDTH) for n in range(2)])
    for one, other in zip(before, twins.stack.parameters, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert not torch.equal(one[[1, 3]], other[[1, 3]])


@pytest.mark.sampled(2)
@models
def test_padding_stays_zero_however_long_it_is_trained(model: str) -> None:
    for rule in RULES:
        twins = Twins(model, "ragged", joint=True, rule=rule)
        for k in range(20):
            small = [drawn(k + n, LONG, WIDTH) / 20 for n in range(2)]
            stepped(twins, [0, 1, 2, 3], [batch(k)] * 4, small[:1] * 4)
            stepped(twins, [1, 2], [batch(k), batch(k + 1)], small)
        padding = twins.padding()
        assert all(each.numel() > 0 and (each == 0).all() for each in padding), rule
        assert twins.apart() <= 1e-12


@models
def test_a_sum_is_of_the_weights_at_the_time_of_embedding(model: str) -> None:
    """Though it is worked out when the weights have long moved on."""
    twins = Twins(model, "ragged", joint=True)
    of = batch(0)
    results = twins.both(lambda learner, place: learner.embed(of), [0, 1, 2, 3])
    tests = twins.both(lambda learner, place: learner.embed_split("test"), [0, 1, 2, 3])
    assert not any(one.computed for one, _ in (*results, *tests))
    for k in range(3):
        stepped(twins, [0, 2], [of] * 2, [drawn(k, LONG, WIDTH)] * 2)
    again = twins.both(lambda learner, place: learner.embed(of), [0, 1, 2, 3])
    for pairs in (results, tests, again):
        assert near(total_of([one for one, _ in pairs[1:]]), sum(other.value for _, other in pairs[1:]))
        assert all(near(one.value, other.value) for one, other in pairs)
    assert not near(results[0][0].value, again[0][0].value)


@pytest.mark.parametrize("model", [name for name in MODELS if name != "rectified"])  # whose sum is not linear
def test_sums_only_are_never_worked_out_client_by_client(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(model, joint=True)
    monkeypatch.setattr(twins.stack, "through", None)
    monkeypatch.setattr(twins.stack, "embeddings", None)
    results = twins.both(lambda learner, place: learner.embed(batch(0)), [0, 1, 2, 3])
    assert near(total_of([one for one, _ in results]), sum(other.value for _, other in results))
    stepped(twins, [0, 1, 2, 3], [batch(0)] * 4, [drawn(0, LONG, WIDTH)] * 4)
    assert twins.apart() <= 1e-12


@models
def test_a_sum_that_was_read_is_not_what_clients_step_along_when_each_has_its_own_gradient(model: str) -> None:
    """As after a crash: the third client has embedded another batch since, and all step at once."""
    twins = Twins(model, joint=True)
    results = twins.both(lambda learner, place: learner.embed(batch(0)), [0, 1, 2, 3])
    total_of([one for one, _ in results])
    twins.both(lambda learner, place: learner.embed(batch(1)), [2])
    batches = [batch(0), batch(0), batch(1), batch(0)]
    stepped(twins, [0, 1, 2, 3], batches, [drawn(n, LONG, WIDTH) for n in range(4)])
    assert twins.apart() <= 1e-12


@pytest.mark.sampled(5)
@models
@layouts
def test_the_sum_over_a_split_may_be_taken_in_pieces(model: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.learning.learners.inputs._BLOCK", 2)
    twins = Twins(model, layout, joint=True)
    pairs = twins.both(lambda learner, place: learner.embed_split("test"), [0, 1, 2, 3])
    for some in (pairs, pairs[1:3], pairs[3:]):
        assert near(total_of([one for one, _ in some]), sum(other.value for _, other in some))


@pytest.mark.sampled(5)
@models
@pytest.mark.parametrize("mechanism", [None, BOUND], ids=["as it is", "bounded"])
def test_a_step_for_a_batch_that_was_not_the_last_to_be_embedded(model: str, mechanism: Gaussian | None) -> None:
    twins = Twins(model, mechanism=mechanism)
    for places in ([0, 1, 2, 3], [1, 2]):
        for k in range(3):
            of = {place: batch(k, place) for place in places}
            twins.both(lambda learner, place, of=of: learner.embed(of[place]), places)
        stepped(twins, places, [batch(1, place) for place in places], [drawn(n, LONG, WIDTH) for n in places])
        assert twins.apart() <= 1e-12


@models
def test_a_step_of_others_than_have_embedded_together(model: str) -> None:
    twins = Twins(model)
    twins.both(lambda learner, place: learner.embed(batch(0)), [0, 1])
    twins.both(lambda learner, place: learner.embed(batch(0)), [2, 3])
    stepped(twins, [0, 1], [batch(0)] * 2, [drawn(n, LONG, WIDTH) for n in range(2)])
    twins.both(lambda learner, place: learner.embed(batch(1)), [0])
    stepped(twins, [2], [batch(0)], [drawn(5, LONG, WIDTH)])
    assert twins.apart() <= 1e-12


@pytest.mark.sampled(14)
@models
@layouts
@pytest.mark.parametrize("clients", [1, 2, 9])
def test_local_steps_are_taken_in_pieces_of_the_stack(
    model: str, layout: str, clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins, seen = Twins(model, layout, mechanism=BOUND), []
    widest = max(size for parameter in twins.stack.parameters for size in parameter.shape[1:])
    monkeypatch.setattr("vflsim.learning.batching.stack._PIECE", clients * LONG * widest * 8)
    through = twins.stack.through
    monkeypatch.setattr(twins.stack, "through", lambda own, x: seen.append(len(x)) or through(own, x))
    for places in ([0, 1, 2, 3], [0, 2, 3]):
        for k in range(3):
            pulled(twins, places, [batch(k, place) for place in places], [drawn(n, LONG, WIDTH) for n in places])
    assert set(seen) == {1: {1}, 2: {1, 2}, 9: {3, 4}}[clients]
    assert twins.apart() <= 1e-12


@pytest.mark.sampled(5)
@models
@pytest.mark.parametrize("joint", [False, True])
def test_layers_may_be_computed_in_pieces_of_the_stack(
    model: str, joint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.learning.batching.stack._PIECE", 1)
    twins = Twins(model, "ragged", joint=joint)
    for k, places in enumerate(([0, 1, 2, 3], [1, 3], [0, 1, 2])):
        pairs = twins.both(lambda learner, place, k=k: learner.embed(batch(k)), places)
        assert all(near(one.value, other.value) for one, other in pairs)
        stepped(twins, places, [batch(k)] * len(places), [drawn(n, LONG, WIDTH) for n in places])
    assert twins.apart() <= 1e-12


def test_clients_with_other_objectives_do_not_step_together() -> None:
    twins = Twins("mlp")
    kernels = [
        twins.together[place].local_step(batch(0), Pull(strength), [given_to(drawn(0, LONG, WIDTH)).value], 0.0).kernel
        for place, strength in enumerate((0.1, 0.2, 0.1))
    ]
    assert kernels[0] is kernels[2]
    assert kernels[0] is not kernels[1]


def test_sums_over_several_stacks_and_clients_alone_add_up() -> None:
    one, other = Twins("linear", joint=True), Twins("mlp", "ragged", joint=True)
    of = batch(4)
    pairs = one.both(lambda learner, place: learner.embed(of), [0, 2, 3])
    pairs += other.both(lambda learner, place: learner.embed(of), [1, 2])
    pairs += Twins("polynomial").both(lambda learner, place: learner.embed(of), [1, 3])
    for _ in range(2):
        assert near(total_of([each for each, _ in pairs]), sum(each.value for _, each in pairs))
        assert all(near(ours.value, theirs.value) for ours, theirs in pairs)


def test_clients_in_several_stacks_step_along_the_gradient_of_their_sum() -> None:
    stacks = [Twins("mlp", joint=True), Twins("deep", "ragged", joint=True)]
    for k in range(3):
        everybody = [0, 1, 2, 3]
        pairs = [pair for each in stacks for pair in each.both(lambda one, place, k=k: one.embed(batch(k)), everybody)]
        assert near(total_of([one for one, _ in pairs]), sum(other.value for _, other in pairs))
        received = drawn(k, LONG, WIDTH) / 5
        for each in stacks:
            stepped(each, everybody, [batch(k)] * 4, [received] * 4)
            assert each.apart() <= 1e-12


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(14)
@models
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_not_finite_names_whose_it_was_and_nobody_steps(
    model: str, value: float, shared: bool
) -> None:
    twins = Twins(model)
    before = [parameter.clone() for parameter in twins.stack.parameters]
    bad = torch.zeros(LONG, WIDTH, dtype=torch.float64)
    bad[1, 2] = value
    received = [bad if shared or place == 2 else torch.ones_like(bad) for place in range(4)]
    name = "client-1, client_step, round 4 at 0.5 s" if shared else "client-3, client_step, round 4 at 1.5 s"
    with pytest.raises(NonFiniteError, match=rf"{name}: the gradient received is not finite\n  remedy: a smaller"):
        stepped(twins, [0, 1, 2, 3], [batch(0)] * 4, received)
    assert all(map(torch.equal, before, twins.stack.parameters))


@models
def test_a_local_objective_that_is_not_finite_names_whose_it_was_and_nobody_steps(model: str) -> None:
    twins = Twins(model)
    before = [parameter.clone() for parameter in twins.stack.parameters]
    targets = [drawn(n, LONG, WIDTH) for n in range(4)]
    targets[2][1, 0] = torch.nan
    name = r"client-3, client_step, round 4 at 1\.5 s"
    with pytest.raises(NonFiniteError, match=f"{name}: the gradient of the local objective is not finite"):
        pulled(twins, [0, 1, 2, 3], [batch(0)] * 4, targets)
    assert all(map(torch.equal, before, twins.stack.parameters))


@models
def test_an_embedding_that_is_not_finite_names_whose_it_was(model: str) -> None:
    features = drawn(1, ROWS, 8)
    features[:, 4:6] = torch.inf  # the third client's
    twins = Twins(model, mechanism=BOUND, features=features)
    with pytest.raises(NonFiniteError, match=r"client-3, embed, round 4 at 1\.5 s: an embedding is not finite"):
        twins.both(lambda learner, place: learner.embed(batch(0)), [0, 1, 2, 3])


@models
def test_the_client_whose_noise_is_used_up_is_named(model: str) -> None:
    twice = Gaussian(clip=0.5, delta=1e-5, epsilon=5, per="run", releases=2)
    twins = Twins(model, mechanism=twice)
    for k in range(2):
        twins.both(lambda learner, place, k=k: learner.embed(batch(0)), [1, 2] if k else [2, 3])
    with pytest.raises(BudgetError, match=r"client-3, embed, round 4 at 1\.5 s: the noise is for 2 releases"):
        twins.both(lambda learner, place: learner.embed(batch(0)), [0, 1, 2, 3])


@models
def test_noise_is_that_of_each_client_whoever_is_computed_with_it(model: str) -> None:
    twins = Twins(model, mechanism=BOUND)
    for places in ([0, 1, 2, 3], [2], [1, 2], [0, 3]):
        for kind in ("embed", "answer"):
            pairs = twins.both(lambda learner, place, kind=kind: getattr(learner, kind)(batch(1)), places)
            assert all(near(one.value, other.value) for one, other in pairs)
    for one, other in zip(twins.together, twins.alone, strict=True):
        assert one.releases is not None
        assert other.releases is not None
        assert one.releases.counts.tolist() == other.releases.counts.tolist()
