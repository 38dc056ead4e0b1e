"""All that packages need which run parties in a world of their own, as live runs do: each in a process, over a network.

The names here keep their meaning; the modules that they come from may change. A world derives from ``World`` or
``RealTimeWorld``; in it, a ``Party`` with its ``Draws`` sends by a ``Transport`` to a ``Mailbox``, and a ``Recorder``
notes its events. ``EventRun`` plays the server's coroutine under a ``Conductor``, and gives an ``Outcome``.

Example: a mailbox that hands on what is delivered, as those of parties in other processes do::

    from collections.abc import Callable

    from vflsim.protocol import Message
    from vflsim.worlds import Mailbox, World


    class Sending(Mailbox):
        def __init__(self, world: World, send: Callable[[Message], None]) -> None:
            super().__init__(world)
            self._send = send

        def deliver(self, message: Message) -> None:
            self._send(message)
"""

from vflsim.books.energy import Energy as Energy
from vflsim.books.spans import COMPUTE as COMPUTE
from vflsim.books.spans import FLOPS as FLOPS
from vflsim.books.spans import spans_of as spans_of
from vflsim.codecs.base import Plain as Plain
from vflsim.codecs.frame import ONLY as ONLY
from vflsim.codecs.frame import check_length as check_length
from vflsim.codecs.frame import from_raw as from_raw
from vflsim.codecs.frame import raw as raw
from vflsim.codecs.frame import raw_bytes as raw_bytes
from vflsim.codecs.frame import read_frame as read_frame
from vflsim.codecs.frame import write_frame as write_frame
from vflsim.files import array_of as array_of
from vflsim.files import json_of as json_of
from vflsim.files import parsed_json as parsed_json
from vflsim.learning.data.loaded import SPLITS as SPLITS
from vflsim.learning.data.loaded import Windows as Windows
from vflsim.learning.execution.operations import Executor as Executor
from vflsim.learning.execution.operations import ImmediateExecutor as ImmediateExecutor
from vflsim.learning.learners.inputs import KeptValue as KeptValue
from vflsim.learning.learners.staleness import StepFacts as StepFacts
from vflsim.learning.learners.watch import Watch as Watch
from vflsim.learning.learners.watch import from_outside as from_outside
from vflsim.learning.privacy.blinding import public_key as public_key
from vflsim.learning.privacy.releases import BatchKey as BatchKey
from vflsim.learning.privacy.releases import Releases as Releases
from vflsim.learning.privacy.releases import Rows as Rows
from vflsim.learning.randomness import drawing_apart as drawing_apart
from vflsim.learning.randomness import drawing_from as drawing_from
from vflsim.learning.states import named as named
from vflsim.learning.states import under as under
from vflsim.learning.training import Training as Training
from vflsim.protocols.defaults import evaluated_splits as evaluated_splits
from vflsim.protocols.defaults import evaluates_wired as evaluates_wired
from vflsim.protocols.defaults import evaluation_of as evaluation_of
from vflsim.protocols.defaults import exchanges_of as exchanges_of
from vflsim.protocols.defaults import untraced as untraced
from vflsim.protocols.hook_checks import coroutine_of as coroutine_of
from vflsim.protocols.hook_checks import learners_of as learners_of
from vflsim.results.facts import Conditions as Conditions
from vflsim.results.store.columns import ENERGY_BY_PARTY as ENERGY_BY_PARTY
from vflsim.results.store.columns import energy_by_party as energy_by_party
from vflsim.results.store.schema import RunTables as RunTables
from vflsim.results.store.write import errors_named as errors_named
from vflsim.results.store.write import write_tensors as write_tensors
from vflsim.results.store.write import written_aside as written_aside
from vflsim.simulation.build import Parties as Parties
from vflsim.simulation.build import brings_code as brings_code
from vflsim.simulation.build import interruptible_of as interruptible_of
from vflsim.simulation.build import party_clock as party_clock
from vflsim.simulation.conditions import conditions_of as conditions_of
from vflsim.simulation.conductor import Conductor as Conductor
from vflsim.simulation.replay import ORDER as ORDER
from vflsim.simulation.replay import order_table as order_table
from vflsim.simulation.reporter import Progress as Progress
from vflsim.simulation.run import EventRun as EventRun
from vflsim.simulation.run import Outcome as Outcome
from vflsim.simulation.run import RunPlan as RunPlan
from vflsim.simulation.run import tables_of as tables_of
from vflsim.timing.party import Power as Power
from vflsim.tracing.contents import Content as Content
from vflsim.version import __version__ as __version__
from vflsim.vocabulary.execution_options import Execution as Execution
from vflsim.world.clock import Timer as Timer
from vflsim.world.failures import STANDSTILL as STANDSTILL
from vflsim.world.failures import stuck as stuck
from vflsim.world.kernel import World as World
from vflsim.world.mailbox import Mailbox as Mailbox
from vflsim.world.meter import Meter as Meter
from vflsim.world.order import InputOrder as InputOrder
from vflsim.world.order import Item as Item
from vflsim.world.outages import Outages as Outages
from vflsim.world.outages import Presence as Presence
from vflsim.world.outages import Run as Run
from vflsim.world.party import Draws as Draws
from vflsim.world.party import Party as Party
from vflsim.world.party import RunContext as RunContext
from vflsim.world.realtime import RealTimeWorld as RealTimeWorld
from vflsim.world.record import Events as Events
from vflsim.world.record import Recorder as Recorder
from vflsim.world.run_tables import ENERGY as ENERGY
from vflsim.world.task import Task as Task
from vflsim.world.transfers import Transfer as Transfer
from vflsim.world.transport import Transport as Transport
from vflsim.world.wire import Wires as Wires
