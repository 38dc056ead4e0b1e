"""How big a run is: weights and memory, counted from shapes, before any of it is made."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from vflsim.learning.models.build import parameters_of
from vflsim.runner.build import SPLITS, LoadedData
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import client_models


@dataclass(frozen=True, slots=True)
class Size:
    """``parameters`` of all parties together, and the ``bytes`` of features, weights with gradients, and table."""

    parameters: int
    bytes: int


def size_of(scenario: Scenario, name: str, data: LoadedData) -> Size:
    """How big a run of protocol ``name`` is. Raises ValueError for a model with more weights than can be counted."""
    protocol, training = scenario.protocols[name].protocol, scenario.training_of(name)
    clients = protocol.participants(scenario.clients, scenario.symbols)
    models, item = client_models(scenario), training.torch_dtype.itemsize
    widths = [models[client - 1].embedding for client in clients]
    counted: dict[tuple[int, tuple[int, ...]], int] = {}  # alike clients are counted once
    parameters = parameters_of(
        lambda: scenario.models.server.build(scenario.models.aggregate.width(widths), data.outputs)
    )
    for client in clients:
        model, shape = models[client - 1], data.shapes[client - 1]
        key = id(model), shape
        if key not in counted:
            counted[key] = parameters_of(lambda model=model, shape=shape: model.build(shape))  # type: ignore[misc]
        parameters += counted[key]
    rows = sum(len(data.labels[split]) for split in SPLITS)
    features = rows * sum(math.prod(data.shapes[client - 1]) for client in clients)
    table = data.rows * sum(widths) if protocol.keeps_table else 0
    return Size(parameters, item * (features + 2 * parameters + table))


def machine_memory() -> float:
    """Bytes of memory of this machine; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf
