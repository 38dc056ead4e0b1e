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

from vflsim.analysis.cycles import Unanalysable as Unanalysable
from vflsim.analysis.findings import ClosedForm as ClosedForm
from vflsim.analysis.findings import Formula as Formula
from vflsim.analysis.findings import NoClosedForm as NoClosedForm
from vflsim.analysis.findings import Range as Range
from vflsim.codecs.base import Codec as Codec
from vflsim.codecs.frame import Envelope as Envelope
from vflsim.codecs.frame import Spec as Spec
from vflsim.errors import DataError as DataError
from vflsim.errors import DisconnectedError as DisconnectedError
from vflsim.errors import IncompleteRoundError as IncompleteRoundError
from vflsim.errors import NoClosedFormError as NoClosedFormError
from vflsim.errors import NonFiniteError as NonFiniteError
from vflsim.errors import ProtocolError as ProtocolError
from vflsim.errors import ScenarioError as ScenarioError
from vflsim.errors import VflsimError as VflsimError
from vflsim.learning.batches import Batch as Batch
from vflsim.learning.batches import BatchSequence as BatchSequence
from vflsim.learning.batches import Split as Split
from vflsim.learning.execution.operations import Handle as Handle
from vflsim.learning.execution.operations import Operation as Operation
from vflsim.learning.learners.client import ClientLearner as ClientLearner
from vflsim.learning.learners.finite import finite_loss as finite_loss
from vflsim.learning.learners.inputs import Received as Received
from vflsim.learning.learners.party import PartyLearner as PartyLearner
from vflsim.learning.learners.server import ServerLearner as ServerLearner
from vflsim.learning.learners.staleness import Staleness as Staleness
from vflsim.learning.losses import Loss as Loss
from vflsim.learning.models.aggregates import Aggregate as Aggregate
from vflsim.learning.optimizers import Optimizer as Optimizer
from vflsim.learning.privacy.accounting import Released as Released
from vflsim.learning.privacy.base import Mechanism as Mechanism
from vflsim.learning.privacy.base import Plan as Plan
from vflsim.protocols.answering import Answering as Answering
from vflsim.protocols.answering import InferenceQuery as InferenceQuery
from vflsim.protocols.answering import Reply as Reply
from vflsim.protocols.base import CheckContext as CheckContext
from vflsim.protocols.base import Protocol as Protocol
from vflsim.protocols.base import UnsuitableError as UnsuitableError
from vflsim.protocols.capabilities import Analysable as Analysable
from vflsim.protocols.capabilities import Blindable as Blindable
from vflsim.protocols.capabilities import Choices as Choices
from vflsim.protocols.capabilities import Explainable as Explainable
from vflsim.protocols.capabilities import LabelSharing as LabelSharing
from vflsim.protocols.capabilities import OwnEvaluation as OwnEvaluation
from vflsim.protocols.capabilities import OwnFacts as OwnFacts
from vflsim.protocols.capabilities import OwnNodes as OwnNodes
from vflsim.protocols.capabilities import Peering as Peering
from vflsim.protocols.capabilities import Predicting as Predicting
from vflsim.protocols.capabilities import Remembering as Remembering
from vflsim.protocols.capabilities import Selective as Selective
from vflsim.protocols.evaluation import Scores as Scores
from vflsim.protocols.synchronous import Synchronous as Synchronous
from vflsim.protocols.traits import REFERENCE as REFERENCE
from vflsim.protocols.traits import ROUNDS as ROUNDS
from vflsim.protocols.traits import TABLE as TABLE
from vflsim.protocols.traits import Traits as Traits
from vflsim.protocols.vectorisable import ActsByHand as ActsByHand
from vflsim.protocols.vectorisable import Vectorisable as Vectorisable
from vflsim.recurrences import BARRIERS as BARRIERS
from vflsim.recurrences import Activated as Activated
from vflsim.recurrences import Acts as Acts
from vflsim.recurrences import ClientDelay as ClientDelay
from vflsim.recurrences import ClientsWait as ClientsWait
from vflsim.recurrences import ClientWork as ClientWork
from vflsim.recurrences import InTurn as InTurn
from vflsim.recurrences import Obstacle as Obstacle
from vflsim.recurrences import Recurrence as Recurrence
from vflsim.recurrences import ServerWaits as ServerWaits
from vflsim.recurrences import ServerWork as ServerWork
from vflsim.recurrences import SynchronousRounds as SynchronousRounds
from vflsim.recurrences import TimedWorld as TimedWorld
from vflsim.recurrences import ToClients as ToClients
from vflsim.recurrences import ToPeers as ToPeers
from vflsim.recurrences import ToServer as ToServer
from vflsim.recurrences import lockstep as lockstep
from vflsim.setting import BatchPlan as BatchPlan
from vflsim.setting import Learners as Learners
from vflsim.setting import ServerPrediction as ServerPrediction
from vflsim.setting import Setting as Setting
from vflsim.setting import client_parts as client_parts
from vflsim.setting import server_parts as server_parts
from vflsim.setting import split_learners as split_learners
from vflsim.setting import split_prediction as split_prediction
from vflsim.streams import SERVER as SERVER
from vflsim.streams import SHARED as SHARED
from vflsim.streams import generator as generator
from vflsim.streams import party_name as party_name
from vflsim.streams import torch_seed as torch_seed
from vflsim.timing.activation import Activation as Activation
from vflsim.timing.arrivals import ActivationProcess as ActivationProcess
from vflsim.timing.availability import Availability as Availability
from vflsim.timing.capacity import Capacity as Capacity
from vflsim.timing.compute import ComputeModel as ComputeModel
from vflsim.timing.compute import OperationCost as OperationCost
from vflsim.timing.delays import AnyDelay as AnyDelay
from vflsim.timing.delays.base import Delay as Delay
from vflsim.timing.floats import Floats as Floats
from vflsim.timing.laws.law import Law as Law
from vflsim.timing.profile import Flat as Flat
from vflsim.timing.profile import Interrupted as Interrupted
from vflsim.timing.profile import Profile as Profile
from vflsim.timing.profile import StepProfile as StepProfile
from vflsim.timing.sampler import Sampler as Sampler
from vflsim.vocabulary.base import Part as Part
from vflsim.vocabulary.figure import Figure as Figure
from vflsim.vocabulary.measure import FinishedRun as FinishedRun
from vflsim.vocabulary.measure import Measure as Measure
from vflsim.vocabulary.metric import Better as Better
from vflsim.vocabulary.metric import Metric as Metric
from vflsim.vocabulary.metric import Scored as Scored
from vflsim.vocabulary.metric import TaskName as TaskName
from vflsim.vocabulary.quantities import BitsPerSecond as BitsPerSecond
from vflsim.vocabulary.quantities import ByteSize as ByteSize
from vflsim.vocabulary.quantities import Count as Count
from vflsim.vocabulary.quantities import FlopsPerSecond as FlopsPerSecond
from vflsim.vocabulary.quantities import Index as Index
from vflsim.vocabulary.quantities import NonNegativeNumber as NonNegativeNumber
from vflsim.vocabulary.quantities import Number as Number
from vflsim.vocabulary.quantities import PerSecond as PerSecond
from vflsim.vocabulary.quantities import PositiveNumber as PositiveNumber
from vflsim.vocabulary.quantities import PositiveSeconds as PositiveSeconds
from vflsim.vocabulary.quantities import Quantity as Quantity
from vflsim.vocabulary.quantities import Seconds as Seconds
from vflsim.vocabulary.stop_rule import Row as Row
from vflsim.vocabulary.stop_rule import StopRule as StopRule
from vflsim.world.messages import Embedding as Embedding
from vflsim.world.messages import EvaluationAnswer as EvaluationAnswer
from vflsim.world.messages import EvaluationRequest as EvaluationRequest
from vflsim.world.messages import Gradient as Gradient
from vflsim.world.messages import Message as Message
from vflsim.world.node import ClientNode as ClientNode
from vflsim.world.node import Node as Node
from vflsim.world.node import ServerNode as ServerNode

API_VERSION = 1
"""The version of this list of names, and of what they mean. Example: ``assert API_VERSION == 1``."""
