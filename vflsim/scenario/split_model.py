"""The split model of a scenario, and a protocol's overrides of it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from vflsim.learning.aggregates import AnyAggregate
from vflsim.learning.models.client import AnyClientModel, ClientModel
from vflsim.learning.models.server import AnyServerModel, ServerModel
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.entries import Entry, OneOrMany, PerClient

ClientModels: TypeAlias = Annotated[
    tuple[Annotated[Entry[ClientModel], PerClient(AnyClientModel)], ...], Field(min_length=1), OneOrMany()
]
"""One model for all clients, or a list of models with ``select``: the last one that selects a client counts."""

Predictors: TypeAlias = Annotated[
    tuple[Annotated[Entry[ServerModel], PerClient(AnyServerModel)], ...], Field(min_length=1), OneOrMany()
]
"""Prediction nets of clients, of the kinds of the server's model: one, or a list with ``select``."""


class ModelsOverride(Part):
    """The parts of the split model that one protocol replaces; ``active: null`` leaves the server's features unused."""

    client: ClientModels | None = None
    aggregate: AnyAggregate | None = None
    server: AnyServerModel | None = None
    active: AnyClientModel | None = None
    predictor: Predictors | None = None


class Models(Part):
    """The split model: one network per client, how their embeddings are joined, and the server's network."""

    client: ClientModels
    """One model for all, or a list of models with ``select``: the last one that selects a client counts."""
    aggregate: AnyAggregate
    server: AnyServerModel
    active: AnyClientModel | None = None
    """The server's embedding model, if ``partition.active`` gives the server features. The aggregate joins its
    embedding first; ``training.server_optimizer`` trains it."""
    predictor: Predictors | None = None
    """The clients' prediction nets, in protocols where every party has one: one for all, or a list with ``select``.
    Clients that no entry selects have one like ``server``, which is the active party's."""

    def overridden(self, by: ModelsOverride | None) -> Models:
        """Return a copy with the parts that ``by`` gives; client models are replaced as a whole."""
        if by is None:
            return self
        given = {key: getattr(by, key) for key in by.model_fields_set}
        return self.model_copy(
            update={key: value for key, value in given.items() if value is not None or key == "active"}
        )
