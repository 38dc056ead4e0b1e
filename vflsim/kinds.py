"""All kinds of parts that a scenario can contain, by category."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vflsim.vocabulary.base import Part

_PLACES = {
    "delays": "vflsim.timing.delays:DELAYS",
    "computes": "vflsim.timing.compute:COMPUTES",
    "networks": "vflsim.world.networks:NETWORKS",
    "transports": "vflsim.world.networks:TRANSPORTS",
    "capacities": "vflsim.timing.capacity:CAPACITIES",
    "activations": "vflsim.timing.activation:ACTIVATIONS",
    "rates": "vflsim.timing.arrivals:RATES",
    "availabilities": "vflsim.timing.availability:AVAILABILITIES",
    "protocols": "vflsim.protocols:PROTOCOLS",
    "client-models": "vflsim.learning.models.client:CLIENT_MODELS",
    "server-models": "vflsim.learning.models.server:SERVER_MODELS",
    "aggregates": "vflsim.learning.models.aggregates:AGGREGATES",
    "optimizers": "vflsim.learning.optimizers:OPTIMIZERS",
    "losses": "vflsim.learning.tasks:LOSSES",
    "metrics": "vflsim.vocabulary.metrics:METRICS",
    "measures": "vflsim.vocabulary.measure:MEASURES",
    "stop-rules": "vflsim.vocabulary.stop_rule:STOP_RULES",
    "mechanisms": "vflsim.learning.privacy.mechanisms:MECHANISMS",
    "codecs": "vflsim.codecs:CODECS",
}


class _Tables(Mapping[str, "tuple[type[Part], ...]"]):
    """Imports a table when it is asked for: `vflsim list delays` does not wait for PyTorch."""

    def __getitem__(self, name: str) -> tuple[type[Part], ...]:
        module, _, table = _PLACES[name].partition(":")
        kinds: tuple[type[Part], ...] = getattr(import_module(module), table)
        return kinds

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


TABLES = _Tables()
