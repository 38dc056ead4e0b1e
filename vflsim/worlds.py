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

from vflsim.books import COMPUTE as COMPUTE, FLOPS as FLOPS, spans_of as spans_of
from vflsim.books.energy import Energy as Energy
from vflsim.codecs.base import Plain as Plain
from vflsim.codecs.encryption import encrypts as encrypts
from vflsim.codecs.frame import (
    ONLY as ONLY,
    check_length as check_length,
    from_raw as from_raw,
    raw as raw,
    raw_bytes as raw_bytes,
    read_frame as read_frame,
    write_frame as write_frame,
)
from vflsim.files import array_of as array_of, json_of as json_of, parsed_json as parsed_json
from vflsim.learning.data.loaded_data import SPLITS as SPLITS, Windows as Windows
from vflsim.learning.execution.operations import Executor as Executor, ImmediateExecutor as ImmediateExecutor
from vflsim.learning.learners.inputs import KeptValue as KeptValue
from vflsim.learning.learners.releases import BatchKey as BatchKey, Releases as Releases, Rows as Rows
from vflsim.learning.learners.staleness import StepFacts as StepFacts
from vflsim.learning.learners.watch import Watch as Watch, from_outside as from_outside
from vflsim.learning.models.build import drawing_apart as drawing_apart, drawing_from as drawing_from
from vflsim.learning.privacy.blinding import public_key as public_key
from vflsim.learning.states import named as named, under as under
from vflsim.learning.training import Training as Training
from vflsim.protocols.capabilities import (
    evaluated_splits as evaluated_splits,
    evaluates_wired as evaluates_wired,
    exchanges_of as exchanges_of,
    untraced as untraced,
)
from vflsim.protocols.hook_checks import coroutine_of as coroutine_of, learners_of as learners_of
from vflsim.results.facts import Conditions as Conditions
from vflsim.results.store.folder import errors_named as errors_named, written_aside as written_aside
from vflsim.results.store.schema import (
    ENERGY_BY_PARTY as ENERGY_BY_PARTY,
    RunTables as RunTables,
    energy_by_party as energy_by_party,
)
from vflsim.results.store.write import write_tensors as write_tensors
from vflsim.simulation.build import (
    Parties as Parties,
    brings_code as brings_code,
    interruptible_of as interruptible_of,
    party_clock as party_clock,
)
from vflsim.simulation.conductor import Conductor as Conductor
from vflsim.simulation.info import conditions_of as conditions_of
from vflsim.simulation.replay import ORDER as ORDER, order_table as order_table
from vflsim.simulation.reporter import Progress as Progress
from vflsim.simulation.run import EventRun as EventRun, Outcome as Outcome, RunPlan as RunPlan, tables_of as tables_of
from vflsim.timing.party import Power as Power
from vflsim.tracing.exchanges import Content as Content
from vflsim.version import __version__ as __version__
from vflsim.vocabulary.execution_options import Execution as Execution
from vflsim.world.kernel import Timer as Timer, World as World
from vflsim.world.mailbox import Mailbox as Mailbox
from vflsim.world.messages import InputOrder as InputOrder, Item as Item
from vflsim.world.outages import Outages as Outages, Presence as Presence, Run as Run
from vflsim.world.party import Draws as Draws, Party as Party, RunContext as RunContext
from vflsim.world.realtime import RealTimeWorld as RealTimeWorld
from vflsim.world.record import Events as Events, Meter as Meter, Recorder as Recorder
from vflsim.world.run_tables import ENERGY as ENERGY
from vflsim.world.task import STANDSTILL as STANDSTILL, Task as Task, stuck as stuck
from vflsim.world.transfers import Transfer as Transfer
from vflsim.world.transport import Transport as Transport
from vflsim.world.wire import Wires as Wires
