"""Obstacles to the vectorised path, each with its key and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from vflsim.codecs.encryption import encrypts
from vflsim.protocols.capabilities import vectorised_by_hand, vectorised_keys_of, vectorised_with
from vflsim.scenario.document import Problem, shown
from vflsim.scenario.models import Scenario, Timing
from vflsim.scenario.resolve import location_of, party_timings
from vflsim.scenario.sections import Evaluate
from vflsim.stopping import RULES, Stop
from vflsim.timing.activation import Immediate
from vflsim.timing.availability import Always
from vflsim.timing.capacity import Link
from vflsim.timing.compute import ByOperation, ComputeModel, law
from vflsim.timing.delays import Constant
from vflsim.timing.delays.base import Delay
from vflsim.timing.party import PartyTiming, by_timing
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.plain_yaml import Location
from vflsim.world.networks import NETWORKS, Fluid

_KNOWN: Mapping[type[Part], frozenset[str]] = {
    Timing: frozenset({"network", "transport", "server", "clients"}),
    PartyTiming: frozenset({"compute", "link", "upload_delay", "activation", "availability", "power", "concurrency"}),
    **dict.fromkeys(NETWORKS, frozenset({"kind", "latency"})),
    Link: frozenset({"up", "down", "latency"}),
    Stop: frozenset(key for key, rule in RULES.items() if rule.on_arrays),
    Evaluate: frozenset({"every"}),
}
"""The keys that the recurrences understand. All others must keep their defaults, since recurrences ignore them."""


_UNSHARED = "dedicated; or no limit to any link's up and down"
MOST_PEERS = 512
"""The most clients that may send each other messages with latencies of their own: some 1 GB of arrays."""


def obstacles(scenario: Scenario, name: str) -> list[Problem]:
    """List the obstacles to timing-only runs of protocol ``name`` on the vectorised path."""
    problems = [
        *_recorded(scenario, name),
        *_protocol(scenario, name),
        *_timing(scenario, name),
        *_unknown(scenario.stop_of(name), lambda key: location_of(scenario, name, "stop", key)),
        *_unknown(scenario.evaluate_of(name), lambda key: location_of(scenario, name, "evaluate", key)),
    ]
    return list({problem.key: problem for problem in reversed(problems)}.values())[::-1]


def _recorded(scenario: Scenario, name: str) -> Iterator[Problem]:
    if scenario.record.tables != "events":
        return
    protocol, timings = scenario.protocols[name].protocol, party_timings(scenario)
    participants = protocol.participants(scenario.clients, scenario.symbols)
    what = ""
    if "events" not in vectorised_with(protocol):
        what = "the vectorised path records events of rounds that wait for all clients, and not of these"
    elif any(not isinstance(timings[client].availability, Always) for client in participants):
        what = "the vectorised path records no events of clients that pause"
    if what:
        yield Problem(("record",), what, "rounds, summary", "set `record: rounds`")


def _protocol(scenario: Scenario, name: str) -> Iterator[Problem]:
    protocol, loc = scenario.protocols[name].protocol, ("protocols", name)
    if scenario.blinding_of(name) is not None and "blinding" not in vectorised_with(protocol):
        what = "rounds end without some embeddings, and the vectorised path knows no missing masks"
        yield Problem((*loc, "blinding"), what, "off", "leave out --path vectorised")
    if (most := protocol.most_rounds) is not None and not (scenario.stop_of(name).rounds or most + 1) <= most:
        what = f"the run ends with round {most:,}, which no array knows"
        yield Problem(location_of(scenario, name, "stop", "rounds"), what, f"1 to {most:,}")
    if (by_hand := vectorised_by_hand(protocol)) is not None:
        if encrypts(codec := scenario.codec_of(name)):
            what = f"{codec.kind} adds work that the recurrence of {protocol.kind} does not know"
            yield Problem((*loc, "codec"), what, "codecs that do not encrypt", "leave out --path vectorised")
        for obstacle in by_hand.obstacles():
            yield Problem((*loc, obstacle.key), obstacle.what, obstacle.allowed, "leave out --path vectorised")
        yield from _unknown(protocol, lambda key: (*loc, key), vectorised_keys_of(by_hand))


def _timing(scenario: Scenario, name: str) -> Iterator[Problem]:
    timing, timings, protocol = scenario.timing, party_timings(scenario), scenario.protocols[name].protocol
    participants = protocol.participants(scenario.clients, scenario.symbols)
    knows = vectorised_with(protocol)
    yield from _unknown(timing, lambda key: ("timing", key))
    if protocol.traits.reference:  # only the server's work takes time
        yield from _delays({("compute",): law(timings[0].compute)}, ("timing", "server"), "the server")
        yield from _compute(timings[0], ("timing", "server"), "the server")
        return
    yield from _unknown(timing.network, lambda key: ("timing", "network", key))
    if not isinstance(timing.transport, Fluid):
        what = f"with {timing.transport.kind} a message takes as long as those before it have let its connection grow"
        yield Problem(("timing", "transport"), what, "fluid", "set `transport: fluid`")
    yield from _party(timings[0], ("timing", "server"), "the server", knows)
    seen = set[object]()
    for parties in by_timing(timings, participants):
        its = timings[parties[0]]
        sort = id(its.compute), its.upload_delay.in_time, id(its.link), id(its.activation), id(its.power)
        if (key := (*sort, id(its.availability))) not in seen:
            seen.add(key)
            yield from _party(its, ("timing", "clients"), f"client {parties[0]}", knows)
    network = timing.network
    drawn = network.latency is not None or any(
        not isinstance(timings[each].link.latency, Constant) for each in participants
    )
    if "peers" in knows and len(participants) > MOST_PEERS and drawn:
        what = f"messages between {len(participants):,} clients have a latency a pair, which fill the memory as arrays"
        yield Problem(("timing",), what, f"at most {MOST_PEERS} clients, or constant latencies of links")
    waits = participants and network.delays(timings[party].link for party in (0, *participants))
    if participants and timings[0].concurrency is not None:
        what = f"a message may have to wait for one of the {timings[0].concurrency} slots of the server"
        yield Problem(("timing", "server", "concurrency"), what, "no limit (the default)", "leave it out")
    if waits and ("sharing" not in knows or scenario.record.tables == "events"):
        what = f"with {network.kind} links a message may have to wait for others"
        if "sharing" not in knows:
            what += ", here also for those of other rounds: late ones, or of batches in flight, or between clients"
        yield Problem(("timing", "network"), what, _UNSHARED, "set `network: dedicated`")
    elif waits and any(not isinstance(timings[client].availability, Always) for client in participants):
        what = f"on {network.kind} links messages of clients that pause stand aside, and others take their place"
        yield Problem(("timing", "network"), what, _UNSHARED, "set `network: dedicated`")


def _party(timing: PartyTiming, place: Location, who: str, knows: frozenset[str]) -> Iterator[Problem]:
    laws = {
        ("compute",): law(timing.compute),
        ("upload_delay",): timing.upload_delay,
        ("link", "latency"): timing.link.latency,
    }
    yield from _delays(laws, place, who)
    yield from _compute(timing, place, who)
    for end, rate in (("up", timing.link.up), ("down", timing.link.down)):
        if not isinstance(rate, float | int):
            yield Problem((*place, "link", end), f"{who}'s link changes its rate in time", "a constant rate")
    if "activation" not in knows and not isinstance(timing.activation, Immediate):
        what = f"{who} waits for activations ({timing.activation.kind})"
        yield Problem((*place, "activation"), what, "immediate")
    away = timing.availability
    if not isinstance(away, Always) and (away.interrupted != "resumed" or "pauses" not in knows):
        lost = away.interrupted != "resumed"
        why = "loses its work in outages, and begins anew" if lost else "pauses, and others need not wait for it"
        allowed = "always, or interrupted: resumed" if lost and "pauses" in knows else "always"
        yield Problem((*place, "availability"), f"{who} {why} ({away.kind})", allowed)
    yield from _power(timing, place, who, knows)
    yield from _unknown(timing, lambda key: (*place, key))
    yield from _unknown(timing.link, lambda key: (*place, "link", key))


def _power(timing: PartyTiming, place: Location, who: str, knows: frozenset[str]) -> Iterator[Problem]:
    if timing.power is None:
        return
    if "energy" not in knows:
        what = f"{who} says what it draws, and in these rounds work is abandoned, or clients are passed over"
        allowed = "protocols that wait for all clients, or clients at their own pace"
        yield Problem((*place, "power"), what, allowed, "leave it out")
    if not isinstance(timing.availability, Always):
        what = f"{who} says what it draws, and pauses: the vectorised path does not tell when"
        yield Problem((*place, "availability"), what, "always", "leave out --path vectorised")


def _compute(timing: PartyTiming, place: Location, who: str) -> Iterator[Problem]:
    if isinstance(timing.compute, ComputeModel) and not timing.compute.proportional:
        what = f"{who}'s compute model ({timing.compute.kind}) turns a draw into time in a way of its own"
        allowed = "delays, flops, and compute models whose seconds are proportional to the draw"
        custom = not isinstance(timing.compute, ByOperation)
        remedy = "set proportional = True in the class if they are" if custom else "leave out --path vectorised"
        yield Problem((*place, "compute"), what, allowed, remedy)


def _delays(laws: Mapping[tuple[str, ...], Delay], place: Location, who: str) -> Iterator[Problem]:
    for key, delay in laws.items():
        if delay.in_time:
            what = f"{who}'s {'.'.join(key)} depends on the instant at which it begins"
            yield Problem((*place, *key), what, "delays of any kind that draws by index alone")


def _unknown(part: Part, place: Callable[[str], Location], keys: frozenset[str] | None = None) -> Iterator[Problem]:
    """Yield a problem for every key that the recurrences ignore and that differs from its default."""
    for key, default in _ignored(type(part), _KNOWN[type(part)] if keys is None else keys):
        value: Any = getattr(part, key)
        if value != default:
            text = value.kind if isinstance(value, Part) and hasattr(value, "kind") else shown(value)
            what = f"the vectorised path does not support {text}"
            yield Problem(place(key), what, f"{shown(default)} (the default)", "leave it out")


@cache  # a run may have a million parties
def _ignored(part: type[Part], known: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    """Return the keys of a part that are not ``known``, with their defaults."""
    fields = part.model_fields.items()
    return tuple((key, field.get_default(call_default_factory=True)) for key, field in fields if key not in known)
