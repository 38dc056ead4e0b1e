"""The table of ``vflsim check``: sizes, and how long runs take, in virtual and in wall-clock time."""

import math
from collections.abc import Iterator, Mapping, Sequence

from vflsim.learning.data.shelf import can_share
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings
from vflsim.stopping.rules import COUNTED
from vflsim.streams import few
from vflsim.studies.checks.expected import TRIAL_STEPS, Expectation
from vflsim.studies.checks.run_speed import Speed, together
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import quantity, roughly, with_words
from vflsim.vocabulary.targets import target_note
from vflsim.world.networks import FLUID

FEWEST = 10
"""Evaluations of a run below which targets are told roughly."""
IDLE = 0.05
"""Share of the time that a line stands idle with messages behind it from which on a warning says so."""
MOST_ROUNDS = 100
"""Rounds before the first evaluation above which it is likely to be too late."""


def expectation_table(
    scenario: Scenario,
    expectations: Sequence[Expectation],
    speeds: Mapping[str, Speed] | None = None,
    workers: int = 1,
    start_s: float = 0.0,
) -> DataTable:
    """Tabulate the expected size and duration of each protocol's runs; ``speeds`` add wall-clock times.

    ``start_s`` is how long each of several ``workers`` takes to start.
    """
    header = ["protocol", "kind", "clients", "a step takes", "rounds at most", "bytes a round", "parameters", "memory"]
    rows: list[list[Cell]] = [
        [
            each.protocol,
            each.kind,
            each.clients,
            quantity(each.step_s, "s"),
            _rounds(each.rounds),
            quantity(each.round_bytes, "B"),
            each.size.parameters,
            quantity(each.size.bytes, "B"),
        ]
        for each in expectations
    ]
    steps = max(each.steps for each in expectations)
    many = f"up to {steps}" if steps == TRIAL_STEPS else f"{steps}"
    largest = max(expectations, key=lambda each: each.size.bytes)
    notes = [
        f"Times and bytes: means over {many} steps simulated without training, seed {scenario.seeds[0]}.",
        f"Rounds at most: by stop's time, {COUNTED}; a target or a budget ε may end a run earlier.",
        f"Memory of a run, about: {largest.protocol} takes {largest.size.told}.",
        *map(target_note, scenario.targets),
        *_few_evaluations(scenario, expectations),
    ]
    if workers > 1 and can_share():
        notes.insert(3, _memory_of_workers(expectations, min(workers, len(expectations) * len(scenario.seeds))))
    notes += [_standstill(each) for each in expectations if each.step_s == 0 and each.rounds > 1]
    notes += _network(scenario)
    if waits := [f"{each.protocol}: {each.longest_wait}" for each in expectations if each.longest_wait]:
        notes.append(f"Links: {few(waits, '; ')}.")
    notes += _idle_line(expectations)
    notes += [f"{each.protocol}: {each.promise}." for each in expectations if each.promise]
    notes += [f"{each.protocol}: {each.particulars}." for each in expectations if each.particulars]
    if speeds is not None:
        header.append("a run in real time")
        for row, each in zip(rows, expectations, strict=True):
            row.append(_run_time(each, speeds[each.protocol]))
        notes.append(_study_time(len(scenario.seeds), expectations, speeds, workers, start_s))
    if any(scenario.stop_of(each.protocol).asks_variation for each in expectations):
        notes.insert(2, "Where stop.precision ends a run, its rounds are a guess from the spread of those steps.")
        notes[3:3] = [
            f"{each.protocol}: stop.precision {each.variation.waits()}." for each in expectations if each.variation
        ]
    importance = [0, 3, *range(8, len(header)), 4, 7, 5, 1, 6, 2]
    return DataTable(header, rows, notes=notes, left=(0, 1), importance=importance)


def _memory_of_workers(expectations: Sequence[Expectation], workers: int) -> str:
    """Say what concurrent runs share, and what each of them takes besides."""
    data = max(each.size.parts["features"] for each in expectations)
    rest = max(each.size.bytes - each.size.parts["features"] for each in expectations)
    return (
        f"Memory of {workers} workers, about: {quantity(data, 'B')} of features once, and up to {quantity(rest, 'B')} "
        "a worker, beside some 300 MB of the process itself."
    )


def _few_evaluations(scenario: Scenario, expectations: Sequence[Expectation]) -> Iterator[str]:
    """Say where targets may be met before the first evaluation, or be told roughly by a few of them.

    That is where a run has fewer than ``FEWEST`` evaluations, or more than ``MOST_ROUNDS`` rounds before the first one.
    """
    many = []
    for each in expectations:
        before = 1 / each.evaluations_per_round if each.evaluations_per_round else math.nan
        evaluations = each.rounds / before
        if before > 1 and (evaluations < FEWEST or before > MOST_ROUNDS):
            in_all = f", and about {max(1, round(evaluations))} in all" if math.isfinite(evaluations) else ""
            finer = f"`evaluate: {{every: {max(1, int(before / FEWEST))} rounds}}`"
            many.append(f"{each.protocol}: the first after some {round(before)} rounds{in_all}; finer: {finer}")
    if many and scenario.targets:
        yield (
            "Evaluated seldom: a target that is met before the first evaluation counts from there, so protocols may "
            f"look alike. {'. '.join(many)}."
        )


def _network(scenario: Scenario) -> Iterator[str]:
    """Say how messages share links and begin to move, unless neither takes any time."""
    timing = scenario.timing
    if timing.transport != FLUID or any(each.link.limited for each in party_timings(scenario)):
        yield f"Network: {timing.network.kind}; transport: {timing.transport.told}."


def _idle_line(expectations: Sequence[Expectation]) -> Iterator[str]:
    """Warn of the line of a serial network that is idle longest while messages wait for it, if that is long."""
    lines = [(each.idle_line[1], each.idle_line[0], each.protocol) for each in expectations if each.idle_line]
    share, line, protocol = max(lines, default=(0.0, "", ""))
    if share >= IDLE:
        yield (
            f"Warning: {protocol}: {line} stands idle {share:.0%} of the time while messages wait for it. On fifo "
            "links these also need the line at their other end, or a slot of the server, which others have."
        )


def _standstill(expected: Expectation) -> str:
    return (
        f"{expected.protocol}: no time passes in its rounds, and evaluations see an instant as it ended. So models are "
        "evaluated at the beginning and at the end alone, and a target is noticed at the end; any time, such as "
        "`timing: {clients: {compute: 1 ms}}`, changes that."
    )


def _rounds(limit: float) -> Cell:
    if limit != limit:
        return "none"
    return "unlimited" if limit == float("inf") else int(limit * (1 + 1e-9))


def _run_time(expected: Expectation, speed: Speed) -> Cell:
    """Return the wall-clock time of a run, or where nothing but a target ends it, that of a round."""
    run_s = speed.run_s(expected)
    if math.isfinite(run_s):
        return roughly(run_s)
    return "—" if math.isnan(run_s) else with_words(roughly(speed.round_s), " a round")


def _study_time(
    seeds: int, expectations: Sequence[Expectation], speeds: Mapping[str, Speed], workers: int, start_s: float
) -> str:
    runs_s = {each.protocol: speeds[each.protocol].run_s(each) for each in expectations}
    ended = [run_s for run_s in runs_s.values() if math.isfinite(run_s)] * seeds
    spreads = [speed.spread for speed in speeds.values()]
    low, high = min(low for low, _ in spreads), max(high for _, high in spreads)
    measured = (
        "Real time: about, for a run with a core to itself, from some rounds of each protocol on this machine, half of "
        f"which took {low:.2g} to {high:.2g} times the median"
    )
    if not ended:
        return f"{measured}, until the target is reached."
    open_ended = [name for name, run_s in runs_s.items() if not math.isfinite(run_s)]
    without = f" without {', '.join(open_ended)}" if open_ended else ""
    return f"{measured}; all {len(ended)} runs{without} take about {together(ended, workers, start_s)}."
