"""Describe a scenario in words, and in the table of ``vflsim check``: data, task, batches, sizes, durations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vflsim.learning.batches import Split
from vflsim.learning.data.labels import USUAL_CLASSES
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.data.shelf import can_share
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, party_timings
from vflsim.simulation.programs.eligibility import obstacles_to_program
from vflsim.stopping import COUNTED
from vflsim.streams import few, party_name
from vflsim.studies.checks.estimates import TRIAL_STEPS, Expectation
from vflsim.studies.checks.run_speed import Speed, together
from vflsim.tables import Cell, DataTable
from vflsim.vocabulary.amounts import quantity, roughly, with_words
from vflsim.vocabulary.expressions import members
from vflsim.vocabulary.plain_yaml import flow, walked
from vflsim.vocabulary.targets import target_note
from vflsim.world.networks import FLUID

_DURATIONS = ("compute", "upload_delay", "latency")
"""The keys of ``timing`` whose plain numbers are constant durations."""
_NAMED = 5
"""The most classes that a warning names."""
_NEEDED: tuple[tuple[Split, str, str], ...] = (
    ("train", "training", "no model can learn them"),
    ("test", "test", "no test metric sees them"),
)
"""The splits that should contain every class, and the consequence of a missing class."""


def described(scenario: Scenario, data: ScenarioData) -> list[str]:
    """Return a line each for the data's size and preparation, the task, batches, overrides of protocols, warnings."""
    loaded = data.of(scenario.training)
    return [
        f"data: {loaded.summary()}{_noise(scenario)}", *loaded.facts.sentences(), _task(loaded),
        _batches(scenario, loaded), *overrides(scenario), *_instant(scenario), *_seconds(scenario), *_warnings(loaded),
    ]  # fmt: skip


def _instant(scenario: Scenario) -> Iterator[str]:
    """Yield a line about parties whose computations take no time because nothing says that they take some."""
    parties = scenario.timing.server, *party_timings(scenario)[1:]
    silent = [party_name(party) for party, each in enumerate(parties) if "compute" not in each.model_fields_set]
    if silent:
        yield f"computations take 0 s at {few(silent)}: `compute` is left out of their timing"


def _seconds(scenario: Scenario) -> Iterator[str]:
    """Yield a line about durations without a unit: they are seconds, and milliseconds are often meant."""
    texts = [
        f"{'.'.join(step for step in loc if isinstance(step, str))}: {value} is {value} s"
        for loc, value in walked(scenario.document.raw.get("timing"), ("timing",))
        if loc[-1] in _DURATIONS and isinstance(value, int | float) and value > 0
    ]
    if texts := [*dict.fromkeys(texts)]:
        yield f"times without a unit are seconds: {few(texts)}; write `5 ms` for milliseconds"


def overrides(scenario: Scenario) -> Iterator[str]:
    """Yield a line for each protocol that overrides the scenario's training, codec, stop rule and so on."""
    raw = scenario.document.raw["protocols"]
    for name in scenario.protocols:
        entry = raw[name] if isinstance(raw[name], Mapping) else {}
        pairs = (
            ("models", scenario.models, scenario.models_of(name)),
            ("training", scenario.training, scenario.training_of(name)),
            ("stop", scenario.stop, scenario.stop_of(name)),
            ("evaluate", scenario.evaluate, scenario.evaluate_of(name)),
        )
        differing = {
            f"{block}.{key}": entry[block][key]
            for block, common, override in pairs
            for key in type(override).model_fields
            if getattr(common, key) != getattr(override, key) and key in entry.get(block, {})
        }
        differing |= {"codec": entry["codec"]} if scenario.codec_of(name) != scenario.codec else {}
        differing |= {"mechanism": entry["mechanism"]} if scenario.protocols[name].mechanism is not None else {}
        differing |= {"blinding": entry["blinding"]} if "blinding" in entry else {}
        if differing:
            yield f"{name} differs: " + ", ".join(f"{key}: {flow(value)}" for key, value in differing.items())


def rows_by_class(data: LoadedData, split: Split) -> list[int]:
    """Count a split's rows of each class, by class number. Raises ValueError for a task without classes."""
    if not data.class_names:
        raise ValueError(f"a {data.task.name} task has no classes")
    numbers = data.labels[split].cpu().numpy().reshape(-1).astype(np.int64)
    counts: list[int] = np.bincount(numbers, minlength=len(data.class_names)).tolist()
    return counts


def _noise(scenario: Scenario) -> str:
    noise = scenario.data.noise
    if noise is None:
        return ""
    clients = members(noise.select, scenario.symbols)
    where = "in place of" if noise.replace else "on"
    return f"; N(0, {noise.sd:g}²) {where} the features of client {few([str(client) for client in clients])}"


def _task(data: LoadedData) -> str:
    name, labels = data.task.name, data.labels["train"].cpu().numpy()
    guess = " (guessed from the labels; data.task says otherwise)" if data.guessed else ""
    if not data.class_names:
        return f"task: {name}{guess}, training labels from {float(labels.min()):.6g} to {float(labels.max()):.6g}"
    counts = rows_by_class(data, "train")
    rarest = min(range(len(counts)), key=counts.__getitem__)
    names = data.class_names
    classes = f"negative {names[0]}, positive {names[1]}" if name == "binary" else f"{len(names)} classes"
    rows = f"{counts[rarest]:,} of {len(labels):,} training rows"
    return f"task: {name}{guess}, {classes}; the rarest class, {names[rarest]}, has {rows}"


def _batches(scenario: Scenario, data: LoadedData) -> str:
    names_by_text: dict[str, list[str]] = {}
    for name, entry in scenario.protocols.items():
        training = scenario.training_of(name)
        sequence = entry.protocol.batch_plan().batches(data.rows, training, 0)
        size = len(sequence.batch(0).ids)
        text = f"all {size:,} training rows" if size == data.rows else f"{size:,} of {data.rows:,} training rows"
        text += f", {sequence.per_epoch:,} an epoch"
        text += f", the last of {sequence.smallest:,}" if sequence.smallest < size else ""
        names_by_text.setdefault(text, []).append(name)
    if len(names_by_text) == 1:
        return f"batch: {next(iter(names_by_text))}"
    return "batch: " + "; ".join(f"{text} ({', '.join(names)})" for text, names in names_by_text.items())


def _warnings(data: LoadedData) -> Iterator[str]:
    for what, names in (
        ("the label", data.class_names),
        *((repr(v.column), v.categories) for v in data.facts.categories),
    ):
        if alike := _alike(names):
            yield (
                f"warning: {what} has {', '.join(map(repr, alike))}, one number in several spellings, each of which "
                "counts for itself; write them alike if they mean the same"
            )
    if data.guessed and len(data.class_names) > USUAL_CLASSES and all(map(_whole, data.class_names)):
        yield (
            f"warning: the labels are {len(data.class_names)} different whole numbers, and are taken for classes; if "
            "they are amounts, say data.task: regression"
        )
    for split, kind, meaning in _NEEDED if data.class_names else ():
        if absent := _absent(data, split):
            named = ", ".join(absent[:_NAMED]) + (f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else "")
            yield (
                f"warning: {len(absent)} of {len(data.class_names)} classes ({named}) without {kind} rows: {meaning}; "
                "look at data.split, data.test_fraction and data.train_rows"
            )


def _absent(data: LoadedData, split: Split) -> list[str]:
    """Return the names of the classes without a row in a split."""
    return [name for name, count in zip(data.class_names, rows_by_class(data, split), strict=True) if not count]


def _alike(names: Sequence[str]) -> list[str]:
    """Return the first names that are the same whole number."""
    by_number: dict[int, list[str]] = {}
    for name in filter(_whole, names):
        by_number.setdefault(int(name), []).append(name)
    return next((alike for alike in by_number.values() if len(alike) > 1), [])


def _whole(label: str) -> bool:
    return label.removeprefix("-").isdigit()


# --- the table --------------------------------------------------------------------------------------------------------


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
        f"Memory of a run, about: {largest.protocol} takes {largest.size.description}.",
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
    notes += _programs(scenario)
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


def _programs(scenario: Scenario) -> Iterator[str]:
    """Say which protocols a program trains, and why it does not train the others."""
    by_reason: dict[str, list[str]] = {}
    for name in scenario.protocols:
        problems = obstacles_to_program(scenario, name)
        by_reason.setdefault(f"{problems[0].key}: {problems[0].what}" if problems else "", []).append(name)
    if names := by_reason.pop("", []):
        yield f"Trained by programs, seeds side by side: {', '.join(names)}."
    if others := [f"{', '.join(names)} ({why})" for why, names in by_reason.items()]:
        yield f"Trained operation by operation: {'; '.join(others)}."


def _network(scenario: Scenario) -> Iterator[str]:
    """Say how messages share links and begin to move, unless neither takes any time."""
    timing = scenario.timing
    if timing.transport != FLUID or any(each.link.limited for each in party_timings(scenario)):
        yield f"Network: {timing.network.kind}; transport: {timing.transport.description}."


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
        "Real time: about, for a run trained by operations, with a core to itself (seeds side by side take less), from "
        "some rounds of each protocol on this machine, half of "
        f"which took {low:.2g} to {high:.2g} times the median"
    )
    if not ended:
        return f"{measured}, until the target is reached."
    open_ended = [name for name, run_s in runs_s.items() if not math.isfinite(run_s)]
    without = f" without {', '.join(open_ended)}" if open_ended else ""
    return f"{measured}; all {len(ended)} runs{without} take about {together(ended, workers, start_s)}."
