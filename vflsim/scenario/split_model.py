"""The split model of a scenario, and a protocol's overrides of it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import ConfigDict, Field

from vflsim.learning.models.aggregates import AnyAggregate
from vflsim.learning.models.client import AnyClientModel, ClientModel
from vflsim.learning.models.server import AnyServerModel, ServerModel
from vflsim.vocabulary.base import Part, as_in
from vflsim.vocabulary.entries import Entry, OneOrMany, PerClient

ClientModels: TypeAlias = Annotated[
    tuple[Annotated[Entry[ClientModel], PerClient(AnyClientModel)], ...], Field(min_length=1), OneOrMany()
]
"""One model for all clients, or a list of models with ``select``: the last one that selects a client counts."""

Predictors: TypeAlias = Annotated[
    tuple[Annotated[Entry[ServerModel], PerClient(AnyServerModel)], ...], Field(min_length=1), OneOrMany()
]
"""Prediction nets of clients, of the kinds of the server's model: one, or a list with ``select``."""


class Models(Part):
    """The split model: one network per client, how their embeddings are joined, and the server's network.

    Example: ``{client: {kind: mlp, hidden: [32], embedding: 16}, aggregate: mean, server: {kind: mlp, hidden:
    [32]}, active: {kind: linear, embedding: 16}, predictor: {kind: linear}}``
    """

    client: ClientModels
    """One model for all, or a list of models with ``select``: the last one that selects a client counts."""
    aggregate: AnyAggregate
    """How the server joins the embeddings."""
    server: AnyServerModel
    """The server's network, from the joined embedding to the prediction."""
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


class ModelsOverride(Part):
    """The parts of the split model that one protocol replaces; ``active: null`` leaves the server's features unused.

    Example: ``{client: {kind: linear, embedding: 16}, aggregate: concat, server: {kind: linear}, active: {kind:
    linear, embedding: 16}, predictor: {kind: linear}}``
    """

    model_config = ConfigDict(json_schema_extra=as_in(Models))

    client: ClientModels | None = None
    aggregate: AnyAggregate | None = None
    server: AnyServerModel | None = None
    active: AnyClientModel | None = None
    predictor: Predictors | None = None
