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

from vflsim.analysis.findings import (
    Choices as Choices,
    ClosedForm as ClosedForm,
    Formula as Formula,
    NoClosedForm as NoClosedForm,
    Range as Range,
)
from vflsim.analysis.stages import Unanalysable as Unanalysable
from vflsim.codecs.base import Codec as Codec
from vflsim.codecs.frame import Envelope as Envelope, Spec as Spec
from vflsim.errors import (
    DataError as DataError,
    DisconnectedError as DisconnectedError,
    IncompleteRoundError as IncompleteRoundError,
    NoClosedFormError as NoClosedFormError,
    NonFiniteError as NonFiniteError,
    ProtocolError as ProtocolError,
    ScenarioError as ScenarioError,
    VflsimError as VflsimError,
)
from vflsim.learning.batches import Batch as Batch, BatchSequence as BatchSequence, Split as Split
from vflsim.learning.execution.operations import Handle as Handle, Operation as Operation, finite_loss as finite_loss
from vflsim.learning.learners.client import ClientLearner as ClientLearner
from vflsim.learning.learners.inputs import Received as Received
from vflsim.learning.learners.party import PartyLearner as PartyLearner
from vflsim.learning.learners.server import ServerLearner as ServerLearner
from vflsim.learning.learners.staleness import Staleness as Staleness
from vflsim.learning.models.aggregates import Aggregate as Aggregate
from vflsim.learning.optimizers import Optimizer as Optimizer
from vflsim.learning.privacy.accounting import Released as Released
from vflsim.learning.privacy.base import Mechanism as Mechanism, Plan as Plan
from vflsim.learning.tasks import Loss as Loss
from vflsim.protocols.answering import (
    Answering as Answering,
    InferenceQuery as InferenceQuery,
    Reply as Reply,
    Scores as Scores,
)
from vflsim.protocols.base import (
    REFERENCE as REFERENCE,
    ROUNDS as ROUNDS,
    TABLE as TABLE,
    CheckContext as CheckContext,
    Protocol as Protocol,
    Traits as Traits,
    UnsuitableError as UnsuitableError,
)
from vflsim.protocols.capabilities import ActsByHand as ActsByHand, Peering as Peering, Vectorisable as Vectorisable
from vflsim.protocols.synchronous import Synchronous as Synchronous
from vflsim.recurrences import (
    BARRIERS as BARRIERS,
    Activated as Activated,
    Acts as Acts,
    ClientDelay as ClientDelay,
    ClientsWait as ClientsWait,
    ClientWork as ClientWork,
    InTurn as InTurn,
    Obstacle as Obstacle,
    Recurrence as Recurrence,
    ServerWaits as ServerWaits,
    ServerWork as ServerWork,
    SynchronousRounds as SynchronousRounds,
    TimedWorld as TimedWorld,
    ToClients as ToClients,
    ToPeers as ToPeers,
    ToServer as ToServer,
)
from vflsim.setting import (
    BatchPlan as BatchPlan,
    Learners as Learners,
    ServerPrediction as ServerPrediction,
    Setting as Setting,
    client_parts as client_parts,
    server_parts as server_parts,
    split_learners as split_learners,
    split_prediction as split_prediction,
)
from vflsim.streams import (
    SERVER as SERVER,
    SHARED as SHARED,
    generator as generator,
    party_name as party_name,
    torch_seed as torch_seed,
)
from vflsim.timing.activation import Activation as Activation
from vflsim.timing.arrivals import ActivationProcess as ActivationProcess
from vflsim.timing.availability import Availability as Availability
from vflsim.timing.capacity import Capacity as Capacity
from vflsim.timing.compute import ComputeModel as ComputeModel, OperationCost as OperationCost
from vflsim.timing.delays import AnyDelay as AnyDelay
from vflsim.timing.delays.base import Delay as Delay
from vflsim.timing.floats import Floats as Floats
from vflsim.timing.laws.law import Law as Law
from vflsim.timing.profile import (
    Flat as Flat,
    Interrupted as Interrupted,
    Profile as Profile,
    StepProfile as StepProfile,
)
from vflsim.timing.sampler import Sampler as Sampler
from vflsim.vocabulary.base import Part as Part
from vflsim.vocabulary.figures import Figure as Figure
from vflsim.vocabulary.measure import FinishedRun as FinishedRun, Measure as Measure
from vflsim.vocabulary.metric import Better as Better, Metric as Metric, Scored as Scored, TaskName as TaskName
from vflsim.vocabulary.quantities import (
    BitsPerSecond as BitsPerSecond,
    ByteSize as ByteSize,
    Count as Count,
    FlopsPerSecond as FlopsPerSecond,
    Index as Index,
    NonNegativeNumber as NonNegativeNumber,
    Number as Number,
    PerSecond as PerSecond,
    PositiveNumber as PositiveNumber,
    PositiveSeconds as PositiveSeconds,
    Quantity as Quantity,
    Seconds as Seconds,
)
from vflsim.vocabulary.stop_rule import Row as Row, StopRule as StopRule
from vflsim.world.messages import (
    Embedding as Embedding,
    EvaluationAnswer as EvaluationAnswer,
    EvaluationRequest as EvaluationRequest,
    Gradient as Gradient,
    Message as Message,
)
from vflsim.world.node import ClientNode as ClientNode, Node as Node, ServerNode as ServerNode

API_VERSION = 1
"""The version of this list of names, and of what they mean. Example: ``assert API_VERSION == 1``."""
