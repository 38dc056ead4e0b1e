"""Capabilities: methods that only some protocols have; and what is true of a protocol with or without them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, ClassVar, Literal

from vflsim.analysis.findings import Finding
from vflsim.analysis.lockstep import lockstep_law
from vflsim.analysis.stages import Unanalysable
from vflsim.codecs.encryption import encrypts
from vflsim.learning.batches import Batch, Split
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.protocols.answering import Answering
from vflsim.protocols.base import Protocol
from vflsim.recurrences import WITH_EVENTS, Acts, Obstacle, Recurrence, SynchronousRounds, TimedWorld
from vflsim.setting import Setting
from vflsim.tracing.exchanges import Exchanges
from vflsim.tracing.node import Untraceable


class Vectorisable(ABC):
    """A protocol with a recurrence of its own. Rounds that wait for all clients need none: they are traced.

    Example::

        class Same(Vectorisable, Protocol):
            def recurrence(self, world: TimedWorld) -> Recurrence:
                return SynchronousRounds(world)
    """

    @abstractmethod
    def recurrence(self, world: TimedWorld) -> Recurrence:
        """Return the recurrence of the rounds. It knows the keys of the class that defines it, and no others."""

    @property
    def vectorised_with(self) -> frozenset[str]:
        """Return what the recurrence knows besides: of ``activation``, ``blinding``, ``energy``, ``pauses``, ``peers``.

        Those whose rounds wait for all clients know all but the last (``BARRIERS``). ``pauses`` are outages in which
        work is resumed; ``energy``: chunks tell the parties' ``spans``; ``peers``: clients send each other messages.
        """
        return frozenset()

    @property
    def trains(self) -> Literal["", "together", "own pace"]:
        """How a program trains plain learners along the rounds: all clients on one batch, or each on batches of its own
        with a table at the server; empty if there is none."""
        return ""

    def numbers_a_round(self, clients: int) -> int:
        """Return about how many times a round of so many clients has, by which rounds are computed together."""
        return clients

    def obstacles(self) -> Iterator[Obstacle]:
        """Yield values of the protocol's keys for which the recurrence does not hold."""
        yield from ()


class ActsByHand(Vectorisable):
    """A protocol whose clients' work depends on times, so that a trace does not show all that they may do.

    Example::

        class Pipelined(ActsByHand, Protocol):
            def recurrence(self, world: TimedWorld) -> Recurrence:
                return InFlightRounds(world, window=2, steps=1)

            def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
                embed = clients[client].embed(batch)
                up = Embedding(batch, embed.result, round=0)
                up.sender = client
                serve = server.server_step([up])
                down = Gradient(value=serve.result.gradient_for(up), round=0)
                step = clients[client].client_step(batch, down), clients[client].step_again(batch, down)
                trip = ClientWork(embed), ToServer(up), ServerWaits(), ServerWork(serve), ToClients(down)
                return *trip, *map(ClientWork, step)
    """

    @abstractmethod
    def acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return what ``client`` and the server do in a round on ``batch``.

        It makes operations and messages of the learners ``server`` and ``clients``, which are counted and never run.
        """

    def first_acts(self, server: Any, clients: Mapping[int, Any], client: int, batch: Batch) -> Acts:
        """Return what ``client`` and the server do before the first round: by default nothing."""
        return ()

    def records(self, server: Any) -> Mapping[str, Mapping[str, Any]]:
        """Return the rows that the server records as the run begins, one for each table: by default none.

        ``server`` is its learner. Rows that a protocol records later need the event path.
        """
        return {}


class Peering:
    """A protocol whose clients send each other messages, too: in a live run they connect to each other.

    What its parties must know of everybody's data before a run are ``public_facts``: numbers by name, told by each
    client to all others in a live run. They are in ``setting.public`` then, and leak nothing else.

    Example::

        class Neighbours(Peering, Protocol):
            kind: Literal["neighbours"] = "neighbours"
            facts_told: ClassVar[tuple[str, ...]] = ("largest",)

            def public_facts(self, setting: Setting, client: int) -> Mapping[str, float]:
                return {"largest": float(setting.data.features[client - 1]["train"].abs().max())}
    """

    facts_told: ClassVar[tuple[str, ...]] = ()
    """The names of all public facts."""

    def public_facts(self, setting: Setting, client: int) -> Mapping[str, float]:
        """Return the facts about the training data of ``client`` that all parties must know: finite numbers."""
        return {}

    def needs_one_process(self) -> str:
        """Say why it cannot run live with these keys, and which it can; empty if it can."""
        return ""


_FROM_WHAT_CAME = Answering()


def overrides(protocol: Protocol, *methods: str) -> bool:
    """Return whether a protocol has one of these ``methods`` of its own."""
    return any(getattr(type(protocol), name) is not getattr(Protocol, name) for name in methods)


def run_facts(protocol: Protocol) -> Mapping[str, Any]:
    """Return the fields of ``run.json`` that depend on the protocol alone."""
    traits = protocol.traits
    return {
        "waits_for_all": traits.waits_for_all,
        "rounds_correspond": traits.rounds_correspond,
        "reference": traits.reference,
        "awaited_replies": traits.awaited_replies,
        **protocol.facts(),
    }


def exchanges_of(protocol: Protocol, setting: Setting) -> Exchanges:
    """Return what a protocol's messages carry: traced, but for rounds whose acts are given by hand."""
    traced = not isinstance(protocol, Peering)  # whose clients send each other messages: their number squared
    splits = evaluated_splits(setting.data)
    return Exchanges(protocol, setting, protocol, splits, partial(protocol.rare_contents, setting), traced)


def local_steps_of(protocol: Protocol, setting: Setting) -> int:
    """Return how many steps a client takes on what it receives in one exchange; 0 without clients."""
    steps = [len(exchanges_of(protocol, setting).of(client, setting.batch).steps) for client in setting.clients[:1]]
    return max([1, *steps]) if steps else 0


def evaluated_splits(data: LoadedData) -> tuple[Split, ...]:
    """Return the splits that a run evaluates: the test rows, and before them the validation rows if there are any."""
    return ("validation", "test") if len(data.labels["validation"]) else ("test",)


def evaluates_wired(protocol: Protocol, setting: Setting) -> bool:
    """Return whether evaluations outside time pass the codec."""
    return not protocol.traits.evaluates_uncompressed and setting.blinding is None


def answering_of(protocol: Protocol) -> Answering:
    """Return how a protocol answers queries under a deadline. Raises ``ValueError`` if it cannot."""
    if protocol.traits.uploads_nothing:
        raise ValueError(protocol.traits.uploads_nothing)
    if isinstance(protocol, Answering):
        return protocol
    if overrides(protocol, "prediction", "evaluate"):
        raise ValueError(
            "it predicts or evaluates in a way of its own, and does not say how from some of the embeddings; "
            "allowed: protocols derived from Answering"
        )
    return _FROM_WHAT_CAME


def extra_bytes_of(protocol: Protocol, setting: Setting) -> int:
    """Count the bytes of a run besides features, weights and gradients: the server's table, and what is remembered."""
    return protocol.extra_bytes(setting) + (table_bytes_of(setting) if protocol.traits.table else 0)


def table_bytes_of(setting: Setting) -> int:
    """Count the bytes of a table of latest embeddings, and of the sums of its rows that it keeps (``SummedTable``)."""
    row = setting.dtype.itemsize * sum(setting.joined_widths)
    parties = range(len(setting.joined_widths))
    if setting.present is None and setting.bound_aggregate.coefficients(parties) is not None:
        row += 8 * setting.joined_widths[0] + 4
    return setting.data.rows * row


def view_bytes_of(protocol: Protocol, setting: Setting, rows: int) -> int:
    """Count the bytes of views of this many training rows: all that every client sends and receives about them."""
    exchanges = exchanges_of(protocol, setting)
    each = [exchanges.of(client, rows) for client in setting.clients]
    shapes = [shape for exchange in each for shape in (*exchange.up.values(), *exchange.down.values())]
    return setting.dtype.itemsize * sum(map(prod, shapes)) + protocol.extra_view_bytes(setting, rows)


def outgrown(protocol: Protocol, method: str) -> str:
    """Say why a class from outside may not inherit ``method`` from vflsim; return an empty text if it may.

    It may not if its algorithm differs. The line ``closed_forms = Synchronous.closed_forms`` in the class states that
    the closed forms also hold for its algorithm.
    """
    kind = type(protocol)
    hooks = [name for name in ("server", "client") if not _owner(kind, name).__module__.startswith("vflsim.")]
    if not hooks or getattr(kind, method) is getattr(Protocol, method, None):
        return ""
    if not _owner(kind, method).__module__.startswith("vflsim."):
        return ""
    source = next(each for each in kind.__mro__ if each.__module__.startswith("vflsim.") and hasattr(each, method))
    return (
        f"{kind.__name__} has its own {' and '.join(hooks)}, and {method} of {source.__name__}; allowed: {method} of "
        f"its own, or `{method} = {source.__name__}.{method}` in the class if that still holds"
    )


def _owner(kind: type, name: str) -> type:
    return next(each for each in kind.__mro__ if name in vars(each))


def closed_forms_of(protocol: Protocol, setting: Setting) -> tuple[Finding, ...]:
    """Return the laws of a round and of its parts: a protocol's own, or that of its trace.

    Raises ``Unanalysable`` with the reason if there are none.
    """
    if outgrown(protocol, "closed_forms"):
        return lockstep_law(protocol, setting)
    if encrypts(setting.codec) and overrides(protocol, "closed_forms"):
        raise Unanalysable(f"{setting.codec.kind} adds work that the closed forms of this protocol do not know")
    return protocol.closed_forms(setting)


def vectorised_by_hand(protocol: Protocol) -> Vectorisable | None:
    """Return a protocol that has a recurrence of its own, made for its own algorithm; None if it has to be traced."""
    return protocol if isinstance(protocol, Vectorisable) and not outgrown(protocol, "recurrence") else None


def timed_world_of(protocol: Protocol, setting: Setting, seed: int, recorded: bool = False) -> TimedWorld:
    """Return the inputs of a run's times. Raises ``Untraceable`` with the reason if there is no trace."""
    by_hand = vectorised_by_hand(protocol)
    acts = (by_hand.first_acts, by_hand.acts) if isinstance(by_hand, ActsByHand) else None
    return TimedWorld(protocol, setting, seed, acts, by_hand is not None, recorded)


def untraced(protocol: Protocol, setting: Setting) -> str:
    """Say why timing alone goes event by event, where rounds cannot be traced; empty if they can, or need not be."""
    if vectorised_by_hand(protocol) is not None:
        return ""
    try:
        timed_world_of(protocol, setting, 0)
    except Untraceable as why:
        return f"timing alone goes event by event: {why}"
    return ""


def recurrence_of(protocol: Protocol, world: TimedWorld) -> Recurrence:
    """Return the recurrence of a protocol's rounds: its own, or that of rounds that wait for all clients."""
    by_hand = vectorised_by_hand(protocol)
    return SynchronousRounds(world) if by_hand is None else by_hand.recurrence(world)


def records_of(protocol: Protocol, world: TimedWorld | None) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows that the server records as a run begins, each with its table."""
    if world is None:
        return []
    by_hand = vectorised_by_hand(protocol)
    if isinstance(by_hand, ActsByHand):
        return [*by_hand.records(world.server).items()]
    return [(row.table, row.fields) for row in world.rows]


def vectorised_with(protocol: Protocol) -> frozenset[str]:
    """Return what the vectorised path of a protocol knows: see ``Vectorisable.vectorised_with``."""
    by_hand = vectorised_by_hand(protocol)
    return WITH_EVENTS if by_hand is None else by_hand.vectorised_with


def numbers_a_round_of(protocol: Protocol, clients: int) -> int:
    """Return about how many times a round of so many clients has."""
    by_hand = vectorised_by_hand(protocol)
    return clients if by_hand is None else by_hand.numbers_a_round(clients)


def vectorised_keys_of(protocol: Vectorisable) -> frozenset[str]:
    """Return the keys that a recurrence knows: those of the class from outside that defines it, or of vflsim's own."""
    kinds = [each for each in type(protocol).__mro__ if issubclass(each, Protocol)]
    owner = _owner(type(protocol), "recurrence")
    if owner.__module__.startswith("vflsim."):
        owner = next(each for each in kinds if each.__module__.startswith("vflsim."))
    return frozenset(owner.model_fields if owner in kinds else {"kind"})
