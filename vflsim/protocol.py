"""All that protocols and other classes of your own need, in one place; nothing else is public to them.

The names here keep their meaning; the modules that they come from may change. ``API_VERSION`` rises with every change
that a class of your own would notice.

Example: synchronous rounds in which a client rests after each of its steps::

    from typing import Literal

    from vflsim.protocol import ClientNode, Embedding, Gradient, PositiveSeconds, Protocol, ServerNode


    class Resting(Protocol):
        kind: Literal["resting"] = "resting"
        rest: PositiveSeconds

        async def server(self, node: ServerNode) -> None:
            for k in node.rounds():
                embeddings = await node.gather("embedding", senders=node.clients, round=k)
                step = await node.compute(node.learner.server_step(embeddings))
                for message in embeddings:
                    gradient = step.gradient_for(message)
                    await node.send(message.sender, Gradient(message.batch, gradient, round=k))

        async def client(self, node: ClientNode) -> None:
            for k in node.rounds():
                batch = node.batch(k)
                h = await node.compute(node.learner.embed(batch))
                await node.upload("server", Embedding(batch, h, round=k))
                gradient = await node.recv("gradient", round=k)
                await node.compute(node.learner.client_step(batch, gradient))
                await node.sleep(self.rest)

A scenario names it by path: ``{kind: module, path: "mine:Resting", rest: 1 s}``.
"""

from __future__ import annotations

from vflsim.analysis.cycles import Unanalysable
from vflsim.analysis.findings import ClosedForm, Formula, NoClosedForm, Range
from vflsim.codecs.base import Codec
from vflsim.codecs.frame import Envelope, Spec
from vflsim.errors import (
    DataError,
    DisconnectedError,
    IncompleteRoundError,
    NoClosedFormError,
    NonFiniteError,
    ProtocolError,
    ScenarioError,
    VflsimError,
)
from vflsim.learning.batches import Batch, BatchSequence, Split
from vflsim.learning.execution.operations import Handle, Operation
from vflsim.learning.learners.client import ClientLearner
from vflsim.learning.learners.finite import finite_loss
from vflsim.learning.learners.inputs import Received
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.server import ServerLearner
from vflsim.learning.learners.staleness import Staleness
from vflsim.learning.losses import Loss
from vflsim.learning.models.aggregates import Aggregate
from vflsim.learning.optimizers import Optimizer
from vflsim.learning.privacy.accounting import Released
from vflsim.learning.privacy.base import Mechanism, Plan
from vflsim.protocols.answering import Answering, InferenceQuery, Reply
from vflsim.protocols.base import CheckContext, Protocol, UnsuitableError
from vflsim.protocols.capabilities import (
    Analysable,
    Blindable,
    Choices,
    Explainable,
    LabelSharing,
    OwnEvaluation,
    OwnFacts,
    OwnNodes,
    Peering,
    Predicting,
    Remembering,
    Selective,
)
from vflsim.protocols.evaluation import Scores
from vflsim.protocols.synchronous import Synchronous
from vflsim.protocols.traits import REFERENCE, ROUNDS, TABLE, Traits
from vflsim.protocols.vectorisable import ActsByHand, Vectorisable
from vflsim.recurrences import (
    BARRIERS,
    Activated,
    Acts,
    ClientDelay,
    ClientsWait,
    ClientWork,
    InTurn,
    Obstacle,
    Recurrence,
    ServerWaits,
    ServerWork,
    SynchronousRounds,
    TimedWorld,
    ToClients,
    ToPeers,
    ToServer,
    lockstep,
)
from vflsim.setting import (
    BatchPlan,
    Learners,
    ServerPrediction,
    Setting,
    client_parts,
    server_parts,
    split_learners,
    split_prediction,
)
from vflsim.streams import SERVER, SHARED, generator, party_name, torch_seed
from vflsim.timing.activation import Activation
from vflsim.timing.arrivals import ActivationProcess
from vflsim.timing.availability import Availability
from vflsim.timing.capacity import Capacity
from vflsim.timing.compute import ComputeModel, OperationCost
from vflsim.timing.delays import AnyDelay
from vflsim.timing.delays.base import Delay
from vflsim.timing.laws.law import Law
from vflsim.timing.profile import Flat, Interrupted, Profile, StepProfile
from vflsim.timing.sampler import Sampler
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.figure import Figure
from vflsim.vocabulary.measure import FinishedRun, Measure
from vflsim.vocabulary.metric import Better, Metric, Scored, TaskName
from vflsim.vocabulary.quantities import (
    BitsPerSecond,
    ByteSize,
    Count,
    FlopsPerSecond,
    Index,
    NonNegativeNumber,
    Number,
    PerSecond,
    PositiveNumber,
    PositiveSeconds,
    Seconds,
)
from vflsim.vocabulary.stop_rule import Row, StopRule
from vflsim.world.messages import Embedding, EvaluationAnswer, EvaluationRequest, Gradient, Message
from vflsim.world.node import ClientNode, Node, ServerNode

API_VERSION = 1
"""The version of this list of names, and of what they mean. Example: ``assert API_VERSION == 1``."""

__all__ = [
    "API_VERSION",
    "BARRIERS",
    "REFERENCE",
    "ROUNDS",
    "SERVER",
    "SHARED",
    "TABLE",
    "Activated",
    "Activation",
    "ActivationProcess",
    "Acts",
    "ActsByHand",
    "Aggregate",
    "Analysable",
    "Answering",
    "AnyDelay",
    "Availability",
    "Batch",
    "BatchPlan",
    "BatchSequence",
    "Better",
    "BitsPerSecond",
    "Blindable",
    "ByteSize",
    "Capacity",
    "CheckContext",
    "Choices",
    "ClientDelay",
    "ClientLearner",
    "ClientNode",
    "ClientWork",
    "ClientsWait",
    "ClosedForm",
    "Codec",
    "ComputeModel",
    "Count",
    "DataError",
    "Delay",
    "DisconnectedError",
    "Embedding",
    "Envelope",
    "EvaluationAnswer",
    "EvaluationRequest",
    "Explainable",
    "Figure",
    "FinishedRun",
    "Flat",
    "FlopsPerSecond",
    "Formula",
    "Gradient",
    "Handle",
    "InTurn",
    "IncompleteRoundError",
    "Index",
    "InferenceQuery",
    "Interrupted",
    "LabelSharing",
    "Law",
    "Learners",
    "Loss",
    "Measure",
    "Mechanism",
    "Message",
    "Metric",
    "NoClosedForm",
    "NoClosedFormError",
    "Node",
    "NonFiniteError",
    "NonNegativeNumber",
    "Number",
    "Obstacle",
    "Operation",
    "OperationCost",
    "Optimizer",
    "OwnEvaluation",
    "OwnFacts",
    "OwnNodes",
    "Part",
    "PartyLearner",
    "Peering",
    "PerSecond",
    "Plan",
    "PositiveNumber",
    "PositiveSeconds",
    "Predicting",
    "Profile",
    "Protocol",
    "ProtocolError",
    "Range",
    "Received",
    "Recurrence",
    "Released",
    "Remembering",
    "Reply",
    "Row",
    "Sampler",
    "ScenarioError",
    "Scored",
    "Scores",
    "Seconds",
    "Selective",
    "ServerLearner",
    "ServerNode",
    "ServerPrediction",
    "ServerWaits",
    "ServerWork",
    "Setting",
    "Spec",
    "Split",
    "Staleness",
    "StepProfile",
    "StopRule",
    "Synchronous",
    "SynchronousRounds",
    "TaskName",
    "TimedWorld",
    "ToClients",
    "ToPeers",
    "ToServer",
    "Traits",
    "Unanalysable",
    "UnsuitableError",
    "Vectorisable",
    "VflsimError",
    "client_parts",
    "finite_loss",
    "generator",
    "lockstep",
    "party_name",
    "server_parts",
    "split_learners",
    "split_prediction",
    "torch_seed",
]
