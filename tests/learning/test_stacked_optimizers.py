"""Stacked optimisers against PyTorch's own, one for every client, with random clients stepping in random order."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from thorough import examples
from torch import Tensor

from vflsim.learning.learners.party_model import FlatModel
from vflsim.learning.optimizers import OPTIMIZERS, STACKED, Adam, Optimizer, Sgd, StackedOptimizer

RULES: dict[str, Optimizer] = {
    "plain": Sgd(lr=0.3),
    "decay": Sgd(lr=0.3, weight_decay=0.2),
    "momentum": Sgd(lr=0.1, momentum=0.9),
    "momentum and decay": Sgd(lr=0.1, momentum=0.5, weight_decay=0.1),
    "nesterov": Sgd(lr=0.1, momentum=0.9, nesterov=True),
    "nesterov and decay": Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": Adam(lr=0.05),
    "adam and decay": Adam(lr=0.05, betas=(0.5, 0.6), eps=1e-3, weight_decay=0.3),
    "adam without memory": Adam(lr=0.05, betas=(0.0, 0.0), eps=0.1),
}
SHAPES = [(3, 2), (4,), (2, 1, 3)]
CLIENTS = 4


def test_every_optimiser_has_a_stacked_rule_and_is_tested() -> None:
    assert set(STACKED) == set(OPTIMIZERS) == {type(rule) for rule in RULES.values()}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Both:
    """Clients' parameters side by side, and the same on their own with an optimiser of PyTorch's each."""

    def __init__(self, rule: Optimizer) -> None:
        self.together = [drawn(n, CLIENTS, *shape) for n, shape in enumerate(SHAPES)]
        self.alone = [[whole[m].clone().requires_grad_() for whole in self.together] for m in range(CLIENTS)]
        self.stacked: StackedOptimizer[Any] = STACKED[type(rule)](rule, self.together)
        self.own = [rule.build(parameters) for parameters in self.alone]

    def step(self, places: list[int], seed: int) -> None:
        gradients = [drawn(seed + n, len(places), *shape) for n, shape in enumerate(SHAPES)]
        if seed % 5 == 0:
            gradients = [gradient * 0 for gradient in gradients]
        given = [gradient.clone() for gradient in gradients]
        self.stacked.step(places, gradients)
        assert all(map(torch.equal, given, gradients))
        for row, place in enumerate(places):
            for parameter, gradient in zip(self.alone[place], gradients, strict=True):
                parameter.grad = gradient[row].clone()
            self.own[place].step()

    def apart(self) -> float:
        return max(
            float((whole[m] - own.detach()).abs().max())
            for m in range(CLIENTS)
            for whole, own in zip(self.together, self.alone[m], strict=True)
        )

    def of(self, place: int) -> list[Tensor]:
        """Everything that belongs to one client."""
        memory = [tensor for tensors in self.stacked.memory.values() for tensor in tensors]
        return [whole[place].clone() for whole in (*self.together, *memory)]


subsets = st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=CLIENTS, unique=True).map(sorted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=examples(15))
@given(steps=st.lists(st.tuples(subsets, st.integers(0, 10_000)), min_size=1, max_size=12))
def test_whoever_steps_when_steps_as_on_its_own(name: str, steps: list[tuple[list[int], int]]) -> None:
    both = Both(RULES[name])
    for places, seed in steps:
        others = [m for m in range(CLIENTS) if m not in places]
        before = {m: both.of(m) for m in others}
        both.step(places, seed)
        for m in others:
            assert all(map(torch.equal, both.of(m), before[m]))
    assert both.apart() <= 1e-12
    assert both.stacked.steps == [sum(m in places for places, _ in steps) for m in range(CLIENTS)]


@pytest.mark.parametrize("name", RULES)
def test_a_hundred_steps_of_everybody(name: str) -> None:
    both = Both(RULES[name])
    for k in range(100):
        both.step(list(range(CLIENTS)), 31 * k + 1)
    assert both.apart() <= 1e-12


@pytest.mark.parametrize("name", RULES)
def test_gradients_may_be_one_tensor_for_all(name: str) -> None:
    """As the gradient of every client's bias is, where all have received the same."""
    one, each = Both(RULES[name]), Both(RULES[name])
    for k in range(5):
        rows = [drawn(k, *shape) for shape in SHAPES]
        one.stacked.step(range(CLIENTS), [row.expand(CLIENTS, *row.shape) for row in rows])
        each.stacked.step(range(CLIENTS), [row.expand(CLIENTS, *row.shape).clone() for row in rows])
    assert all(map(torch.equal, one.together, each.together))


@pytest.mark.parametrize("name", RULES)
def test_what_stays_zero_without_a_gradient_is_exactly_zero(name: str) -> None:
    """The weights of features that a narrow client does not have."""
    parameters = [torch.zeros(2, 3, dtype=torch.float64)]
    optimizer = STACKED[type(RULES[name])](RULES[name], parameters)
    for k in range(20):
        gradient = torch.zeros(2, 3, dtype=torch.float64)
        gradient[0, 0] = 0.5 - k
        optimizer.step([0, 1] if k % 3 else [k % 2], [gradient if k % 3 else gradient[:1]])
    assert parameters[0][1, 1:].tolist() == [0, 0]
    assert parameters[0][0, 1:].tolist() == [0, 0]
    assert parameters[0][0, 0] != 0


@pytest.mark.parametrize("name", RULES)
def test_a_model_as_one_vector_steps_as_layer_by_layer(name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    other.load_state_dict(model.state_dict())
    flat = FlatModel("top", lambda: model, RULES[name], (3,), torch.float64)
    optimizer = RULES[name].build(other.parameters())
    for k in range(20):
        x, unused = drawn(k, 5, 3).requires_grad_(), drawn(0, 2).requires_grad_()
        gradient, (by_x, nothing) = flat.gradients(model(x).square().sum(), [x, unused])
        optimizer.zero_grad()
        y = x.detach().clone().requires_grad_()
        other(y).square().sum().backward()
        assert torch.equal(by_x, y.grad)
        assert torch.equal(nothing, torch.zeros(2, dtype=torch.float64))
        flat.step(gradient)
        optimizer.step()
    for one, another in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, another, rtol=0, atol=1e-12)
    assert all(map(torch.equal, model.parameters(), flat.vector_parts))
