"""Find settings that make rounds impossible by a trial without training; name their keys."""

import math
from collections.abc import Iterator

from vflsim.errors import DeadlockError, IncompleteRoundError, VflsimError
from vflsim.learning.data.loaded import LoadedData
from vflsim.scenario.document import Problem, failure
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, party_timings
from vflsim.scenario.sections import Record, Recording
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import UndecidedError, obstacles, run_vectorised
from vflsim.stopping.rules import Stop
from vflsim.streams import few
from vflsim.timing.activation import Immediate
from vflsim.timing.availability import Always
from vflsim.timing.capacity import capacity_profile
from vflsim.timing.party import PartyTiming
from vflsim.vocabulary.plain_yaml import Location

MOST_SEEDS = 10
"""Most seeds to try; with more seeds another might succeed, so the study simply runs."""
HOPELESS = (DeadlockError, IncompleteRoundError)

_LIMITS = {
    "up": ("nothing leaves {who} from {since:.6g} s on", "a last rate above 0, or a `period`"),
    "down": ("nothing reaches {who} from {since:.6g} s on", "a last rate above 0, or a `period`"),
    "availability": ("down for good from {since:.6g} s on: {who}", "a repair, or a protocol that continues without it"),
    "activation": ("no activation comes after {since:.6g} s for {who}", "a `period`, or later times"),
}
"""For each setting that ends for good: the consequence, and the allowed values."""


def refuse_hopeless(scenario: Scenario, data: ScenarioData) -> None:
    """Raise ``ScenarioError`` for a protocol whose first round is impossible with every seed.

    Training does not change the timing, so a trial without training suffices. Only protocols with a setting that ends
    for good are tried.
    """
    if len(scenario.seeds) > MOST_SEEDS:
        return
    for name in scenario.protocols:
        errors = []
        for seed in scenario.seeds:
            if not any(True for _ in settings_that_end(scenario, name, seed)):
                break
            outcome = trial(scenario, name, seed, data.of(scenario.training_of(name)), rounds=1)
            if not isinstance(outcome.error, HOPELESS) or outcome.info.counts["rounds"]:
                break
            errors.append(blamed(scenario, name, seed, outcome))
        else:
            raise errors[0]


def trial(
    scenario: Scenario, name: str, seed: int, data: LoadedData, rounds: int, record: Record = "rounds"
) -> Outcome:
    """Simulate ``rounds`` rounds of protocol ``name`` without training, or fewer if its stop time comes first."""
    entry = scenario.protocols[name]
    tried = scenario.model_copy(update={
        "record": Recording(tables=record),
        "stop": Stop(rounds=rounds, time=scenario.stop_of(name).time),
        "protocols": {**scenario.protocols, name: entry.model_copy(update={"stop": None})},
    })  # fmt: skip
    if not obstacles(tried, name):  # the same rounds, sooner
        outcome = run_vectorised(tried, name, seed, data, ages=False)
        if not isinstance(outcome.error, UndecidedError):
            return outcome
    return run_protocol(tried, name, seed, data, timing_only=True)


def blamed(scenario: Scenario, name: str, seed: int, outcome: Outcome) -> VflsimError:
    """Return the error of a failed trial: if settings make its next round impossible, one that names them."""
    assert outcome.error is not None
    ended: dict[tuple[Location, str], list[tuple[int, float]]] = {}
    for party, key, since in settings_that_end(scenario, name, seed) if isinstance(outcome.error, HOPELESS) else ():
        ended.setdefault((_place(scenario, party, key), key), []).append((party, since))
    problems = []
    for (place, key), parties in ended.items():
        what, allowed = _LIMITS[key]
        who = few([f"client {party}" if party else "the server" for party, _ in parties])
        since = min(since for _, since in parties)
        rounds = outcome.info.counts["rounds"]
        cannot = f"{name} cannot complete {f'more than {rounds} rounds' if rounds else 'its first round'}"
        problems.append(Problem(place, f"{cannot}: {what.format(who=who, since=since)} (seed {seed})", allowed))
    return failure(problems, scenario.document) if problems else outcome.error


def settings_that_end(scenario: Scenario, name: str, seed: int) -> Iterator[tuple[int, str, float]]:
    """Yield every party's settings that end for good under a protocol: (party, setting, seconds)."""
    protocol, timings = scenario.protocols[name].protocol, party_timings(scenario)
    lasting = set[tuple[int, ...]]()  # links, availabilities and activations without an end, by identity
    for party in (0, *protocol.participants(scenario.clients, scenario.symbols)):
        timing = timings[party]
        its = id(timing.link), id(timing.availability), id(timing.activation)
        if its in lasting:
            continue
        if _lasts(timing):
            lasting.add(its)
            continue
        ends = {
            "up": capacity_profile(timing.link.up).dry_from(),
            "down": capacity_profile(timing.link.down).dry_from(),
        }
        if party and not protocol.traits.reference:
            if not isinstance(timing.availability, Always):
                ends["availability"] = timing.availability.profile(seed, party).dry_from()
            if not isinstance(timing.activation, Immediate):
                ends["activation"] = timing.activation.last
        yield from ((party, key, since) for key, since in ends.items() if since < math.inf)


def _lasts(timing: PartyTiming) -> bool:
    """Return whether a party's links never run dry, and it is always up and free to begin."""
    limits = (capacity_profile(capacity).dry_from() for capacity in (timing.link.up, timing.link.down))
    always = isinstance(timing.availability, Always) and isinstance(timing.activation, Immediate)
    return always and min(limits) == math.inf


def _place(scenario: Scenario, party: int, key: str) -> Location:
    """Locate a party's setting in the scenario: the last entry that gives it."""
    loc = ("link", key) if key in ("up", "down") else (key,)
    if party == 0:
        return ("timing", "server", *loc)
    raw = scenario.document.raw["timing"]["clients"]
    entries = raw if isinstance(raw, list) else [raw]
    for number in reversed(range(len(entries))):
        value = entries[number]
        for step in loc:
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None and party in scenario.timing.clients[number].clients:
            return ("timing", "clients", *((number,) if isinstance(raw, list) else ()), *loc)
    return ("timing", "clients")
