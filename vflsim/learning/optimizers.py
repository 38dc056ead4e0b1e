"""The update rules of a party's weights: PyTorch's optimisers, and the same for clients side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeAlias, TypeVar, get_args

from pydantic import AfterValidator, Field, model_validator

from vflsim.learning.states import load_optimizer, optimizer_state
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.on_demand import Tensor, nn, torch
from vflsim.vocabulary.quantities import Fraction01, NonNegativeNumber, PositiveNumber
from vflsim.vocabulary.trial import Trial, alike, type_of


def _below_one(value: float) -> float:
    if value >= 1:
        raise ValueError(f"{value:g} would never forget; allowed: at least 0 and below 1")
    return value


Memory = Annotated[Fraction01, AfterValidator(_below_one)]
"""The part of a running average that survives a step: at least 0 and below 1."""


class Optimizer(Part, ABC):
    """An update rule for weights θ with gradient g.

    Example, which a scenario names by ``client_optimizer: {kind: module, path: "mine:Adadelta", lr: 0.5}``::

        class Adadelta(Optimizer):
            kind: Literal["adadelta"] = "adadelta"

            @property
            def slots(self) -> int:
                return 2

            def build(self, params: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
                return torch.optim.Adadelta(params, self.lr, weight_decay=self.weight_decay, foreach=False)


        Adadelta(lr=0.5).slots  # 2
    """

    kind: str
    """The name of this kind, as scenarios write it."""
    lr: PositiveNumber
    """The learning rate."""
    weight_decay: NonNegativeNumber = 0.0
    """Added to the gradient, times θ."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many numbers it remembers of each weight between steps."""

    @abstractmethod
    def build(self, params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """PyTorch's optimiser for these parameters, in its plain implementation.

        The grouped and fused ones may sum in another order, which would tie the results to the hardware.
        """

    def _contract(self, trial: Trial) -> None:
        trial.fact("slots", lambda value: type(value) is int and value >= 0, "a whole number, 0 or more")
        allowed = "steps that follow from weights and gradients"
        whole = trial.ask("build", trial, False, call=self._stepped, where="after some steps", repeats=allowed)
        what = f"{trial.name} goes on differently from its memory"
        trial.must(alike(whole, self._stepped(trial, True)), what, "memory in `optimizer.state` alone", "build")

    def _stepped(self, trial: Trial, resumed: bool) -> list[Tensor]:
        """Return the weights after each of four steps; ``resumed``: from a checkpoint after the second."""
        parameters, optimizer = self._built(trial)
        course: list[Tensor] = []
        for step in range(_STEPS):
            if resumed and step == _STEPS // 2:
                before, state = parameters, optimizer_state(optimizer)
                parameters, optimizer = self._built(trial)
                load_optimizer(optimizer, state)
                with torch.no_grad():
                    for weight, other in zip(parameters, before, strict=True):
                        weight.copy_(other)
            draw = torch.Generator().manual_seed(2 + step)
            for parameter in parameters:
                parameter.grad = torch.randn(parameter.shape, generator=draw)
            optimizer.step()
            optimizer.zero_grad()
            course += [parameter.detach().clone() for parameter in parameters]
        finite = all(bool(torch.isfinite(values).all()) for values in course)
        what = f"{trial.name} gives weights that are not finite for gradients of magnitude 1"
        trial.must(finite, what, "finite", "build")
        memories = (item for memory in optimizer.state.values() for item in memory.items())
        keys = {key for key, value in memories if not (value is None or isinstance(value, Tensor))}
        what = f"{trial.name} remembers {', '.join(sorted(keys))}, no tensor"
        trial.must(not keys, what, "tensors, which are kept", "build")
        return course

    def _built(self, trial: Trial) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        draw = torch.Generator().manual_seed(1)
        parameters = [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((3, 2), (3,))]
        optimizer, name = self.build(parameters), f"{trial.name}.build"
        known = isinstance(optimizer, torch.optim.Optimizer)
        trial.must(known, f"{name} returned {type_of(optimizer)}", "a torch.optim.Optimizer", "build")
        plain = not (optimizer.defaults.get("fused") or optimizer.defaults.get("foreach"))
        trial.must(plain, f"{name} makes a grouped or fused optimiser", "foreach=False, fused=False", "build")
        untouched = all(parameter.grad is None for parameter in parameters)
        trial.must(untouched, f"{name} sets gradients", "an optimiser of the parameters as they are", "build")
        return parameters, optimizer


_STEPS = 4


class Sgd(Optimizer):
    """Stochastic gradient descent: v ← momentum · v + g, θ ← θ − lr · v (``torch.optim.SGD``).

    Example: ``{kind: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1e-4}``
    """

    kind: Literal["sgd"] = "sgd"
    momentum: Memory = 0.0
    """The part of the velocity v that survives a step."""
    nesterov: bool = False
    """Step along g + momentum · v instead of v."""

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self

    @property
    def slots(self) -> int:
        """The velocity, with momentum."""
        return 1 if self.momentum else 0

    def build(self, params: Iterable[nn.Parameter]) -> torch.optim.SGD:
        """``torch.optim.SGD``."""
        return torch.optim.SGD(
            params,
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            foreach=False,
            fused=False,
        )


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015, Alg. 1), ``torch.optim.Adam``.

    Example: ``{kind: adam, lr: 0.001, betas: [0.9, 0.99], eps: 1e-7, weight_decay: 1e-4}``
    """

    kind: Literal["adam"] = "adam"
    betas: tuple[Memory, Memory] = (0.9, 0.999)
    """The parts of the running averages of g and of g² that survive a step."""
    eps: PositiveNumber = 1e-8
    """Added to the denominator."""

    @property
    def slots(self) -> int:
        """Both running averages."""
        return 2

    def build(self, params: Iterable[nn.Parameter]) -> torch.optim.Adam:
        """``torch.optim.Adam``."""
        return torch.optim.Adam(
            params,
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            foreach=False,
            fused=False,
        )


OptimizerKind: TypeAlias = Sgd | Adam
OPTIMIZERS: tuple[type[Optimizer], ...] = get_args(OptimizerKind)
AnyOptimizer = Annotated[OptimizerKind, Field(discriminator="kind"), OrModule(Optimizer)]


# --- stacked optimizers -----------------------------------------------------------------------------------------------


R = TypeVar("R", bound=Optimizer)


class StackedOptimizer(ABC, Generic[R]):
    """Steps of some of M clients whose ``parameters`` are (M, …) each.

    ``slots`` names what is remembered between steps, one tensor like each parameter; ``steps`` counts the steps of each
    client. Invariant: a client that does not step keeps parameters and memory, to the bit.
    """

    slots: tuple[str, ...] = ()

    def __init__(self, rule: R, parameters: Sequence[Tensor]) -> None:
        self.rule, self.parameters, self._lr = rule, parameters, rule.lr
        self.memory = {slot: [torch.zeros_like(parameter) for parameter in parameters] for slot in self.slots}
        self.steps = [0] * len(parameters[0])
        self.apart = False
        """Whether clients that step together get the bits of those that step one by one."""

    def step(self, places: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step the clients at ``places`` (ascending) along their ``gradients``, (len(places), …) a parameter."""
        for place in places:
            self.steps[place] += 1
        counts = [self.steps[place] for place in places]
        whole_stack = len(places) == len(self.steps)
        index = None if whole_stack else torch.tensor(places, device=self.parameters[0].device)
        for n, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            whole = [parameter, *(self.memory[slot][n] for slot in self.slots)]
            some = whole if index is None else [tensor.index_select(0, index) for tensor in whole]
            self.update(gradient, counts, *some)
            if index is not None:
                for tensor, changed in zip(whole, some, strict=True):
                    tensor.index_copy_(0, index, changed)

    def scale_rate(self, factor: float) -> None:
        """Step at ``factor`` times the learning rate from now on."""
        self.rule = self.rule.model_copy(update={"lr": self._lr * factor})

    def state(self) -> dict[str, Tensor]:
        """Return the memory, by name: the tensors themselves, and the counts of steps."""
        memory = {f"{slot}.{n}": tensor for slot, tensors in self.memory.items() for n, tensor in enumerate(tensors)}
        return {"steps": torch.tensor(self.steps), **memory}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        self.steps = state["steps"].tolist()
        for slot, tensors in self.memory.items():
            for n, tensor in enumerate(tensors):
                tensor.copy_(state[f"{slot}.{n}"])

    @abstractmethod
    def update(self, gradient: Tensor, counts: Sequence[int], parameter: Tensor, *memory: Tensor) -> None:
        """Update one parameter in place: all are (G, …); ``counts`` are the clients' steps, this one included.

        ``gradient`` must not be changed.
        """

    def decayed(self, gradient: Tensor, parameter: Tensor) -> Tensor:
        """Add the weight decay to the gradient."""
        decay = self.rule.weight_decay
        return gradient.add(parameter, alpha=decay) if decay else gradient


class StackedSgd(StackedOptimizer[Sgd]):
    """``torch.optim.SGD``'s rule."""

    def __init__(self, rule: Sgd, parameters: Sequence[Tensor]) -> None:
        self.slots = ("momentum_buffer",) if rule.momentum else ()
        super().__init__(rule, parameters)

    def update(self, gradient: Tensor, counts: Sequence[int], parameter: Tensor, *memory: Tensor) -> None:
        """v ← momentum · v + g, θ ← θ − lr · v (or along g + momentum · v)."""
        direction = self.decayed(gradient, parameter)
        for velocity in memory:
            velocity.mul_(self.rule.momentum).add_(direction)
            direction = direction.add(velocity, alpha=self.rule.momentum) if self.rule.nesterov else velocity
        parameter.add_(direction, alpha=-self.rule.lr)


class StackedAdam(StackedOptimizer[Adam]):
    """``torch.optim.Adam``'s rule."""

    slots = ("exp_avg", "exp_avg_sq")

    def update(self, gradient: Tensor, counts: Sequence[int], parameter: Tensor, *memory: Tensor) -> None:
        """Kingma & Ba 2015, Alg. 1, with every client's own count of steps."""
        mean, square = memory
        (beta1, beta2), rule = self.rule.betas, self.rule
        direction = self.decayed(gradient, parameter)
        mean.lerp_(direction, 1 - beta1)
        square.mul_(beta2).addcmul_(direction, direction, value=1 - beta2)
        sizes = [rule.lr / (1 - beta1**count) for count in counts]
        roots = [(1 - beta2**count) ** 0.5 for count in counts]
        if len(set(counts)) == 1 and not self.apart:
            parameter.addcdiv_(mean, square.sqrt().div_(roots[0]).add_(rule.eps), value=-sizes[0])
            return
        shape = (-1, *([1] * (parameter.dim() - 1)))
        size, root = (torch.tensor(each, dtype=torch.float64).to(parameter).view(shape) for each in (sizes, roots))
        parameter.sub_(mean.div(square.sqrt().div_(root).add_(rule.eps)).mul_(size))


STACKED: dict[type[Optimizer], type[StackedOptimizer[Any]]] = {Sgd: StackedSgd, Adam: StackedAdam}
"""The stacked rule of every kind of optimiser."""


class JoinedOptimizer:
    """The stacked optimisers of R runs as one, for ``parameters`` (R M, …): those of the runs one after the other.

    Their rules are of one kind with the same slots, and may differ in their numbers. ``in_step``: all clients of a run
    step together. Invariant: what a run learns does not depend on the others, to the bit.
    """

    def __init__(
        self, optimizers: Sequence[StackedOptimizer[Any]], parameters: Sequence[Tensor], in_step: bool
    ) -> None:
        first, size = optimizers[0], len(optimizers[0].steps)
        self._joint = type(first)(first.rule, parameters)
        self._joint.apart, self._in_step = not in_step, in_step
        self._joint.steps = [count for each in optimizers for count in each.steps]
        self._joint.memory = {
            slot: [joined(each) for each in zip(*(optimizer.memory[slot] for optimizer in optimizers), strict=True)]
            for slot in first.slots
        }
        rules: dict[Optimizer, list[int]] = {}
        for run, optimizer in enumerate(optimizers):
            rules.setdefault(optimizer.rule, []).extend(range(run * size, (run + 1) * size))
        self._rules = [*rules]
        self._rule_of = {place: number for number, places in enumerate(rules.values()) for place in places}

    def step(self, places: Sequence[int], gradients: Sequence[Tensor]) -> None:
        """Step those at ``places`` (ascending) along their ``gradients``, (len(places), …) a parameter."""
        alike: dict[tuple[int, int], list[int]] = {}
        for n, place in enumerate(places):
            count = self._joint.steps[place] if self._in_step else 0
            alike.setdefault((self._rule_of[place], count), []).append(n)
        for (rule, _), some in alike.items():
            self._joint.rule = self._rules[rule]
            if len(alike) == 1:
                self._joint.step(places, gradients)
                return
            index = torch.tensor(some, device=gradients[0].device)
            self._joint.step([places[n] for n in some], [each.index_select(0, index) for each in gradients])

    def store(self, optimizer: StackedOptimizer[Any], places: slice) -> None:
        """Copy the memory of those at ``places`` to the ``optimizer`` of their run."""
        optimizer.steps = self._joint.steps[places]
        for slot, tensors in optimizer.memory.items():
            for memory, joint in zip(tensors, self._joint.memory[slot], strict=True):
                memory.copy_(joint[places])


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors one after the other; a single one is not copied."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
