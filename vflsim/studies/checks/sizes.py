"""Size of a run: weights and memory, counted from shapes before any allocation; whether this machine can hold it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

from vflsim.errors import ProtocolError
from vflsim.files import machine_memory
from vflsim.learning.batching.kernels import KERNELS, evaluated_as_sum, trained_as_sum
from vflsim.learning.batching.products import LayeredStack
from vflsim.learning.data.shelf import can_share
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.protocols import Protocol
from vflsim.protocols.capabilities import extra_bytes_of, view_bytes_of
from vflsim.protocols.hook_checks import learners_of
from vflsim.scenario.checks import broken
from vflsim.scenario.document import Problem
from vflsim.scenario.models import Scenario
from vflsim.scenario.sections import ViewRecording
from vflsim.setting import Learners, Setting
from vflsim.vocabulary.amounts import quantity

KEPT = "table and the like"
"""The name in ``Size.parts`` of what a protocol keeps."""


@dataclass(frozen=True, slots=True)
class Size:
    """``parameters`` of all parties, and the ``bytes`` that a run holds at a time, in ``parts`` by name.

    A training step and an evaluation follow each other: the larger counts.
    """

    parameters: int
    bytes: int
    parts: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def held_bytes(self) -> int:
        """The bytes of features and weights alone."""
        return self.parts["features"] + self.parts["weights"]

    @property
    def description(self) -> str:
        """The parts that are not zero, the largest first."""
        largest = sorted(self.parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{what} {quantity(size, 'B')}" for what, size in largest if size)


def run_size(scenario: Scenario, name: str, setting: Setting) -> Size:
    """Count the weights and bytes of a run of a scenario's protocol. Raises ValueError as ``size_of`` does."""
    protocol = scenario.protocols[name].protocol
    return size_of(protocol, setting, scenario.record.views, arrivals_of_a_row(protocol, setting, scenario, name))


def size_problems(
    scenario: Scenario, settings: Mapping[str, Setting], workers: int, training: bool
) -> Iterator[Problem]:
    """Check that this machine can hold the runs that go on at a time."""
    sizes: dict[str, Size] = {}
    for name, resolved in settings.items():
        try:
            sizes[name] = run_size(scenario, name, resolved)
        except ValueError as error:
            remedy = "make embeddings or hidden layers narrower"
            yield Problem(("models",), str(error), "models that fit into memory", remedy)
            return
        except ProtocolError as error:  # the learners have the wrong type
            yield Problem(("protocols", name), error.what, error.allowed, error.remedy or "mend the protocol")
            return
        except Exception as error:
            yield broken(name, error)
            return
    needed = {name: size.bytes if training else size.held_bytes for name, size in sizes.items()}
    there, largest = machine_memory(), max(needed, key=needed.__getitem__)
    allowed = f"up to {quantity(there, 'B')}, the memory of this machine"
    at_a_time = min(workers, len(settings) * len(scenario.seeds))
    if needed[largest] > there:
        remedy = "make embeddings or hidden layers narrower, choose a smaller training.batch, or use fewer rows"
        if 2 * sizes[largest].parts["views"] > there:
            remedy = "keep views of fewer rows (record.views.rows), end earlier, or write `keep: last`"
        takes = f"{largest} needs about {quantity(needed[largest], 'B')} ({sizes[largest].description})"
        yield Problem(("models",), takes, allowed, remedy)
        return
    data = {id(each.data.joint["train"]): each.data.nbytes for each in settings.values()}
    shared = sum(data.values()) if can_share() else 0  # workers map the same features and labels
    rest = needed[largest] - (sizes[largest].parts["features"] if can_share() else 0)
    if at_a_time > 1 and shared + at_a_time * rest > there:
        total, most = quantity(shared + at_a_time * rest, "B"), max(1, int((there - shared) // rest))
        once = "; features once" if shared else ""
        takes = f"{at_a_time} runs of {largest} at a time need about {total} ({sizes[largest].description} each{once})"
        yield Problem(("models",), takes, allowed, f"give at most --workers {most}")


def arrivals_of_a_row(protocol: Protocol, setting: Setting, scenario: Scenario, name: str) -> int:
    """Return the most arrivals of messages about a row until the run's end, per kind and sender.

    Counted from the stop rules that tell; at least 1.
    """
    stop = scenario.stop_of(name)
    clients = max(1, len(setting.clients))
    plan = protocol.batch_plan()
    batches = plan.batches(setting.data.rows, scenario.training_of(name), 0).per_epoch
    rounds = [most for rule in stop.each() if (most := rule.rounds_at_most(batches)) < inf]
    rounds += [stop.updates / clients] if stop.updates else []
    rounds += [protocol.most_rounds] if protocol.most_rounds else []
    passes = min((plan.epochs(most, most * clients, clients, batches) for most in rounds), default=1.0)
    return ceil(passes) + 1  # the last pass may repeat rows


def size_of(protocol: Protocol, setting: Setting, views: ViewRecording | None = None, arrivals: int = 1) -> Size:
    """Count the weights and bytes of a run that records ``views``, and where it keeps all, ``arrivals`` of each row.

    Raises ValueError for a model with more weights than can be counted.
    """
    learners = learners_of(protocol, setting, seed=0)
    evaluated = max(len(setting.data.labels[split]) for split in ("validation", "test"))
    total = _count(learners.server, setting, evaluated)
    total.pop("output")
    counts = [total, *(_count_alike(clients, learners, setting, evaluated) for clients in setting.sorts)]
    once = {what: max(each.pop(what, 0) for each in counts) for what in ("step", "operation", "summed", "trained sum")}
    for each in counts[1:]:
        total.update(each)
    viewed = 0 if views is None else view_bytes_of(protocol, setting, min(views.rows, setting.data.rows))
    if views is not None and views.keep == "all":
        viewed *= 2 * arrivals  # the recorded pieces, and the written tables
    parts = {each: total[each] for each in ("features", "weights", "gradients", "optimisers")}
    batch = total["batch"] + once["trained sum"] + max(once["step"], total["stacked step"])
    evaluation = total["evaluation"] + once["summed"] + once["operation"]
    busiest = {"activations of a batch": batch} if batch > evaluation else {"an evaluation": evaluation}
    parts |= {**busiest, KEPT: extra_bytes_of(protocol, setting), "views": viewed}
    return Size(total["parameters"], sum(parts.values()), parts)


def _count_alike(
    clients: Sequence[int], learners: Learners[Any, Any], setting: Setting, evaluated: int
) -> Counter[str]:
    """Count clients with the same shapes as ``_count`` does.

    Clients of a stack compute at once. If only the sum of their embeddings is ever used, no embedding is made: the sum
    counts, once for all stacks. If not, their embeddings are stacked for the server, and so are the gradients.
    """
    learner, model = learners.clients[clients[0]], setting.models[clients[0] - 1]
    one = _count(learner, setting, evaluated)
    once = Counter({what: one.pop(what) for what in ("step", "operation", "output")})
    counts = Counter({what: len(clients) * size for what, size in one.items()})
    if not learners.split or isinstance(KERNELS[type(model)], str):
        return counts + once
    server, output = learners.server, once["output"]
    table = isinstance(server, ServerLearner) and (server.parts.table or server.parts.dropout is not None)
    if evaluated_as_sum(learner, model, setting.aggregate):
        once["summed"] = one["evaluation"]
        counts["evaluation"] = 0
    if trained_as_sum(learner, model, setting.aggregate, table):
        counts["batch"] -= 2 * output * len(clients)
        once["trained sum"] = 2 * output
        if KERNELS[type(model)] is LayeredStack:
            counts["stacked step"] = once["step"] * len(clients)
    else:
        counts["batch"] += 2 * output * len(clients)
    return counts + once


def _count(learner: PartyLearner, setting: Setting, evaluated: int) -> Counter[str]:
    """Count a party's weights, its bytes by part, and those of the largest operation of a step and of an evaluation."""
    counts = Counter(features=learner.nbytes)
    step = operation = output = 0
    for model in learner.models.values():
        weights, item = model.parameters, model.dtype.itemsize
        trained, whole = model.footprint(setting.batch), model.footprint(evaluated)
        counts += Counter(
            parameters=weights,
            weights=(weights + model.frozen) * item,
            gradients=weights * item * model.gradients_held,
            optimisers=weights * item * model.rule.slots,
            batch=trained.kept + 2 * trained.output,  # with the gradient by the output
            evaluation=whole.output,
        )
        step, operation = max(step, trained.largest), max(operation, whole.largest)
        output += trained.output
    counts.update(step=step, operation=operation, output=output)
    return counts
