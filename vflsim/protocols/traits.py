"""Facts about a protocol that the framework needs besides its algorithm, and presets for common protocols."""

from __future__ import annotations

from dataclasses import dataclass, replace

ALL_ROWS = "its learners are its own, and need every row of every party"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Facts of a protocol that hold for every value of its keys. Begin with a preset, and ``replace`` what differs.

    Example: ``traits: ClassVar[Traits] = replace(ROUNDS, mechanism=False)``
    """

    shared_batches: bool = True
    """Whether all embeddings of a step must belong to the same batch."""
    waits_for_all: bool = False
    """Whether each step waits for every client. Speed-ups refer to the first such protocol of a scenario."""
    rounds_correspond: bool = False
    """Whether every participant begins its k-th work in round k. Rounds of two such protocols can be paired."""
    table: bool = False
    """Whether the server keeps the latest embedding of every (sample, client)."""
    reference: bool = False
    """Whether the server computes the clients' models, too: clients cannot fail, and their FLOPs count as the
    server's."""
    active_features: bool = False
    """Whether the server's learner uses its own features (``partition.active``)."""
    predictors: bool = False
    """Whether every party has a prediction net on an embedding of its own model's width (``models.predictor``)."""
    party_scores: bool = False
    """Whether parties have their own predictors, with metrics in columns such as ``test_accuracy.client-2``."""
    mechanism: bool = True
    """Whether clients upload their own embeddings, which a mechanism (bound and noise) can protect."""
    shows_uploads: bool = True
    """Whether the server can read what a single client uploads, unless it is blinded."""
    refuses_absent_rows: str = ALL_ROWS
    """Why parties cannot lack rows (``data.align: outer``). Empty if they can: embeddings are joined by a
    ``ServerLearner``, and clients are ``ClientLearner``."""
    only_embeddings_up: bool = True
    """Whether embeddings are all that clients upload in training. Blinded ones are integers, which no codec changes."""
    uploads_nothing: str = ""
    """Why the server gets no embedding from anybody, so that none can be attacked. Empty if it does."""
    evaluates_uncompressed: bool = False
    """Whether to skip the codec in evaluations that take no virtual time. With blinding they always skip it."""
    runs_on_cpu: bool = False
    """Whether runs use the CPU even if the study has another device."""
    awaited_replies: tuple[str, ...] = ()
    """Extra message kinds that the server waits for before a step."""


ROUNDS = Traits(waits_for_all=True, rounds_correspond=True, active_features=True, refuses_absent_rows="")
"""Rounds of plain split learners on shared batches: each step waits for every client.

Example: ``traits: ClassVar[Traits] = ROUNDS``.
"""
TABLE = Traits(
    shared_batches=False, table=True, active_features=True, refuses_absent_rows="", awaited_replies=("answer",)
)
"""A server that keeps the latest embedding of every row and never waits for all clients.

Example: ``traits: ClassVar[Traits] = TABLE``.
"""
REFERENCE = Traits(
    reference=True,
    active_features=True,
    refuses_absent_rows="",
    mechanism=False,
    uploads_nothing="all features are at the server, which gets no embedding from anybody",
)
"""A reference with all features in one place. The difference to it is the cost of distribution.

Example: ``traits: ClassVar[Traits] = REFERENCE``.
"""

__all__ = ["ALL_ROWS", "REFERENCE", "ROUNDS", "TABLE", "Traits", "replace"]
