"""Rounds before a study: their closed forms, some that are simulated, and settings that make them impossible."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vflsim.analysis.findings import ClosedForm, Finding, NoClosedForm, Range, Simulated
from vflsim.analysis.rounds import ROUND
from vflsim.analysis.stages import Unanalysable
from vflsim.errors import DeadlockError, IncompleteRoundError, VflsimError
from vflsim.intervals import BATCHES, steady_mean
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.protocols.capabilities import closed_forms_of, vectorised_by_hand
from vflsim.results.store.closed_forms import ClosedForms, Curve, LeftOut, curves_of, table_of
from vflsim.scenario.document import Problem, failure
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, party_timings, setting
from vflsim.simulation.run import Outcome
from vflsim.simulation.variation import variation_of
from vflsim.streams import SERVER, few
from vflsim.studies.checks.trials import rounds_of, trial
from vflsim.tables.arrow import array_of
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


_CLIENT_ROUNDS = 400_000
"""Clients × rounds by arrays: some tenths of a second."""
_MOVED = 20_000
"""The same where arrays move one message after the other: clients at their own pace, on links that they share."""
_ROUNDS = 20_000
_MESSAGES = 3_000
"""The most messages of rounds that are simulated event by event: some tenths of a second."""


def simulated(scenario: Scenario, name: str, data: LoadedData, none: NoClosedForm) -> Finding:
    """Return the mean round of a run without training with a 95 % interval, in the place of ``none``.

    It has the scenario's first seed. ``none`` stays where the run fails or its mean has no sound interval.
    """
    protocol, resolved = scenario.protocols[name].protocol, setting(scenario, name, data)
    links = [resolved.timings[party].link for party in (SERVER, *resolved.clients)]
    moved = vectorised_by_hand(protocol) is not None and len(links) > 1 and resolved.network.delays(links)
    most = min(_ROUNDS, max(2 * BATCHES, (_MOVED if moved else _CLIENT_ROUNDS) // scenario.clients))
    outcome, _ = rounds_of(scenario, name, data, most, _MESSAGES, fewest=2 * BATCHES)
    rounds = outcome.tables.rounds
    if outcome.error is not None or rounds is None:
        return none
    variation = variation_of(protocol, resolved)
    mean = steady_mean(np.diff(array_of(rounds.column("end_s")), prepend=0.0)[1:], variation=variation)
    if not mean.sound:
        return none
    return Simulated(none.name, "s", Range(mean.low, mean.high), mean.n, none.reason)


# --- closed forms -----------------------------------------------------------------------------------------------------


MOST_CLIENTS = 2_000
"""The most clients for which results include closed forms; ``analyse`` has no such limit."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Analytic findings about one protocol of a scenario."""

    protocol: str
    findings: tuple[Finding, ...]

    @property
    def round(self) -> Finding:
        """The finding about the duration of a round."""
        none = NoClosedForm(ROUND, "the protocol derives none")
        return next((each for each in self.findings if each.name == ROUND), none)


def analyse(scenario: Scenario, name: str, data: LoadedData) -> Analysis:
    """Derive the closed forms of protocol ``name``, or the reasons why there are none; errors count as reasons.

    A round lasts from the end of one server step to the end of the next, as in ``rounds.parquet``.
    """
    try:
        findings = closed_forms_of(scenario.protocols[name].protocol, setting(scenario, name, data))
    except Unanalysable as reason:
        findings = (NoClosedForm(ROUND, str(reason)),)
    except Exception as error:  # neither a failure of a delay's arithmetic nor a defect may stop a study
        findings = (NoClosedForm.because_of(ROUND, error),)
    return Analysis(name, tuple(map(_computable, findings)))


def analyse_or_simulate(scenario: Scenario, name: str, data: LoadedData) -> Analysis:
    """Derive the closed forms of protocol ``name``; simulate rounds where their duration has none."""
    analysis = analyse(scenario, name, data)
    none = analysis.round
    if not isinstance(none, NoClosedForm) or none.failed:
        return analysis

    return Analysis(name, (simulated(scenario, name, data, none), *(one for one in analysis.findings if one != none)))


def _computable(finding: Finding) -> Finding:
    """Return the finding if its (lazy) numbers can be computed, else the reason why not."""
    if not isinstance(finding, ClosedForm):
        return finding
    try:
        known = [finding.mean.low, finding.mean.high]
        known += [float(law.cdf(finding.mean.low)) for law in (finding.law, finding.slower) if law is not None]
    except Exception as error:
        return NoClosedForm.because_of(finding.name, error)
    if any(map(math.isnan, known)):
        return NoClosedForm(finding.name, "its delays are too far apart in size for the arithmetic of floats")
    return finding


def closed_forms(scenario: Scenario, data: ScenarioData) -> ClosedForms:
    """Compute the curves stored with the results, and the reasons for omissions; errors count as reasons.

    Protocols with very many clients are omitted: their curves would take longer than a run.
    """
    curves, left_out = list[Curve](), list[LeftOut]()
    for name in scenario.protocols:
        try:
            known, reasons = _curves(scenario, name, data)
        except Exception as error:
            known, reasons = [], [NoClosedForm.because_of(ROUND, error)]
        curves += known
        left_out += [LeftOut(name, each.name, each.reason, each.failed) for each in reasons]
    return ClosedForms(table_of(curves, left_out), tuple(left_out))


def _curves(scenario: Scenario, name: str, data: ScenarioData) -> tuple[list[Curve], list[NoClosedForm]]:
    """Compute a protocol's curves and the reasons for omissions; a quantity has curves of all its clients or none."""
    many = len(scenario.protocols[name].protocol.participants(scenario.clients, scenario.symbols))
    if many > MOST_CLIENTS:
        why = f"the curves of {many:,} clients (more than {MOST_CLIENTS:,}) would take longer than a run"
        return [], [NoClosedForm(ROUND, why)]
    curves, groups = list[Curve](), dict[str, list[Finding]]()
    reasons = list[NoClosedForm]()
    for finding in analyse(scenario, name, data.of(scenario.training_of(name))).findings:
        groups.setdefault(finding.name, []).append(finding)
    for quantity, findings in groups.items():
        without = [each for each in findings if isinstance(each, NoClosedForm)]
        reasons += without
        if not without:
            try:
                curves += curves_of(name, [each for each in findings if isinstance(each, ClosedForm)])
            except Exception as error:
                reasons.append(NoClosedForm.because_of(quantity, error))
    return curves, reasons
