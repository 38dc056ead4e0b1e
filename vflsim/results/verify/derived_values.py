"""What follows from other tables, computed again: the summary, curves of closed forms, sums of energy."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import TypeAlias

import numpy as np
import pandas as pd

from vflsim.analysis.findings import ClosedForm
from vflsim.analysis.rounds import ROUND
from vflsim.books import PartySpans, spans_of
from vflsim.books.energy import BY_PARTY, STATES, Energy, joules
from vflsim.errors import ResultsError
from vflsim.protocols.capabilities import closed_forms_of
from vflsim.results.events import party_number
from vflsim.results.read import Results
from vflsim.results.statistics import summarise, to_table
from vflsim.results.store.closed_forms import FILE, curves_of, read_closed_forms, read_left_out
from vflsim.results.store.folder import SUMMARIES
from vflsim.results.store.run import SHOWN, StoredRun
from vflsim.results.store.schema import ENERGY_BY_PARTY, RANGES, read_table
from vflsim.results.verify.frames import ROUNDING, Frames, numbers
from vflsim.results.verify.scenario import ByScenario
from vflsim.setting import Setting
from vflsim.timing.party import Power
from vflsim.version import __version__
from vflsim.world.run_tables import ENERGY

_TAIL = 1e-4
"""How much of a curve may lie beyond its last point: ten times what is left out where it is made."""
_NEAR = 1e-6
"""How far a probability may be from the closed form: other machines round otherwise."""
_ROUNDING = 1e-9
"""How far, in parts, a number of the summary may be from that of the runs: other machines round otherwise."""
_Key: TypeAlias = tuple[str, int]
"""The quantity of a curve, and its client (-1: none)."""


def summary_problems(results: Results) -> Iterator[str]:
    """Yield a sentence for the first value of the summary that is not that of the runs.

    Without the tables of all runs there is none: what is wrong with those has a sentence of its own.
    """
    path = results.folder / SUMMARIES[0]
    if not path.is_file() or not _of_this_version(results):
        return
    stored = read_table(path)
    try:
        again = to_table(summarise(results))
    except ResultsError:
        return
    if stored.column_names != again.column_names or stored.num_rows != again.num_rows:
        yield (
            f"{path.name} has {stored.num_rows} rows and the columns {', '.join(stored.column_names)}; the runs give "
            f"{again.num_rows} and {', '.join(again.column_names)}"
        )
        return
    for column in stored.column_names:
        pairs = zip(stored[column].to_pylist(), again[column].to_pylist(), strict=True)
        for row, (one, other) in enumerate(pairs):
            if not _alike(one, other):
                measure = again["measure"][row].as_py()
                yield f"{path.name}, row {row} ({measure}): {column} is {one!r}, and the runs give {other!r}"
                return


def curve_problems(results: Results, scenario: ByScenario) -> Iterator[str]:
    """Yield a sentence for each closed form that is missing, incomplete, or not that of the scenario's timing."""
    try:
        curves, left_out = read_closed_forms(results.folder), read_left_out(results.folder)
    except ResultsError as error:
        yield str(error)
        return
    if curves is None:
        return
    reasons = {(each.protocol, each.quantity) for each in left_out}
    for name in results.protocols:
        each = (curve for _, curve in curves[curves["protocol"] == name].groupby(["quantity", "client"]))
        by_key = {(str(curve["quantity"].iloc[0]), int(curve["client"].iloc[0])): curve for curve in each}
        broken = {key: problem for key, curve in by_key.items() if (problem := _of_curve(curve))}
        if not broken and (by_key or (name, ROUND) not in reasons) and _of_this_version(results):
            broken = _of_laws(name, by_key, scenario, {what.replace(" ", "_") for who, what in reasons if who == name})
        for (quantity, client), problem in broken.items():
            of = f", client {client}" if client >= 0 else ""
            yield f"{FILE}: the {quantity} of {name}{of}: {problem}"


def _of_laws(name: str, curves: dict[_Key, pd.DataFrame], scenario: ByScenario, reasons: set[str]) -> dict[_Key, str]:
    """Say which curves of a protocol differ from those that its timing gives at the same points."""
    resolved = scenario.setting(name)
    if resolved is None:
        return {}
    at = {quantity: curve["x"].to_numpy() for (quantity, _), curve in curves.items()}
    try:
        findings = closed_forms_of(scenario.protocol(name), resolved)
        again = curves_of(name, [each for each in findings if isinstance(each, ClosedForm)], at)
    except Exception:  # there is nothing to compare with; the study has listed why
        return {}
    expected = {(quantity, client): (lower, upper) for _, quantity, client, _, lower, upper in again}
    broken: dict[_Key, str] = {key: "is missing" for key in expected.keys() - curves.keys() if key[0] not in reasons}
    for key, curve in curves.items():
        if key not in expected:
            broken[key] = "does not follow from the scenario's timing"
            continue
        stored = (curve[name].to_numpy() for name in ("cdf", "cdf_upper"))
        if any(
            len(one) != len(other) or np.abs(one - other).max() > _NEAR
            for one, other in zip(stored, expected[key], strict=True)
        ):
            broken[key] = "is not that of the scenario's timing"
    return broken


def _of_this_version(results: Results) -> bool:
    """Whether this version of vflsim has written all runs: others may have other statistics and closed forms."""
    return all(run.info.versions.get("vflsim") == __version__ for run in results.runs)


def _alike(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING) or one == other
    return one == other


def _of_curve(curve: pd.DataFrame) -> str:
    """Say what is wrong with the points of a curve, if anything is."""
    x, lower, upper = (curve[name].to_numpy() for name in ("x", "cdf", "cdf_upper"))
    if (np.diff(x) <= 0).any():
        return "x does not ascend"
    for name, values in (("cdf", lower), ("cdf_upper", upper)):
        if ((values < 0) | (values > 1) | (np.diff(values, prepend=0) < -_NEAR)).any():
            return f"{name} is no distribution"
        if values[-1] < 1 - _TAIL:
            return f"{name} ends at {values[-1]:g}"
    return "cdf exceeds cdf_upper" if (lower > upper + _NEAR).any() else ""


def energy_problems(run: StoredRun, frames: Frames, setting: Setting | None) -> Iterator[str]:
    """Yield a sentence for every energy that is not what powers and events add up to.

    ``setting`` is that of the run's protocol, None if it cannot be had.
    """
    if ENERGY not in frames.metrics:
        return
    table, path = run.energy(), run.folder / f"{ENERGY_BY_PARTY}.parquet"
    if table is None:
        yield f"{path.name} is missing, and the metrics have {ENERGY}"
        return
    parties = table["party"].drop_duplicates().tolist()
    if [*zip(table["party"], table["state"], strict=True)] != [*product(parties, STATES)]:
        yield f"{path.name}: its rows are not {', '.join(STATES)} of each party"
        return
    yield from _of_table(table, frames)
    powers = {party_number(str(party)): _power(rows) for party, rows in table.groupby("party", sort=False)}
    timings = () if setting is None else setting.timings
    for party, power in powers.items():
        stated = timings[party].power if party < len(timings) else power
        if stated is None or _rates(stated) != _rates(power):
            rates = "nothing" if stated is None else _rates(stated)
            yield f"{path.name}: party {party} draws {_rates(power)}; the scenario says {rates}"
    if frames.has_rounds and ENERGY not in frames.rounds:
        yield f"rounds have no column {ENERGY}, and the metrics have one"
        return
    if not frames.has_events or frames.cut:
        return
    energy, spans, times = Energy(powers), _spans(frames.events), np.empty(0)
    known = bool((table["joules_each"] == 0)[table["state"] == "compute"].all())  # events do not tell operations
    if known:
        times = np.unique(np.concatenate([[0.0], frames.metrics["time_s"], frames.rounds["end_s"]]))
    # Without what ends at the very time, and with it: a message that does may count on either side.
    slots = (np.searchsorted(times, at) + np.searchsorted(times, at, "right") for at in (spans.began, spans.ends))
    until = energy.take(spans.bounds(*slots), np.repeat(times, 2).tolist())
    if known:
        yield from _of_times(frames, dict(zip(times.tolist(), zip(until[::2], until[1::2], strict=True), strict=True)))
    again = energy.by_party(frames.end)
    for place, row in enumerate(table.to_dict("records")):
        for column in ("seconds",) if row["state"] == "compute" else ("seconds", "amount"):
            stored, computed = float(row[column]), float(again[column][place])
            if abs(stored - computed) > ROUNDING * (1 + abs(computed)):
                what = f"{path.name}: {column} of {row['party']}'s {row['state']} are {stored:g}"
                yield f"{what}, and its events add up to {computed:g}"


def _of_table(table: pd.DataFrame, frames: Frames) -> Iterator[str]:
    """Nothing is negative; joules are powers × seconds and amounts, and together the last row of the metrics."""
    for column, span in RANGES[ENERGY_BY_PARTY].items():
        for _, row in table[span.outside(table[column].to_numpy())].head(SHOWN).iterrows():
            what = f"{ENERGY_BY_PARTY}.parquet: {column} of {row['party']}'s {row['state']}"
            yield f"{what} is {row[column]:g}, and must be {span}"
    expected = pd.Series([*map(joules, *(table[name] for name in BY_PARTY[2:-1]))], table.index, float)
    for _, row in table[(table["joules"] - expected).abs() > ROUNDING * (1 + expected)].head(SHOWN).iterrows():
        yield f"{ENERGY_BY_PARTY}.parquet: joules of {row['party']}'s {row['state']} are not its powers × its seconds"
    last, total = float(numbers(frames.metrics, ENERGY)[0][-1]), table["joules"].sum()
    if not frames.cut and abs(last - total) > ROUNDING * (1 + total):
        yield f"metrics: the last {ENERGY} is {last}, and the parties' add up to {total}"


def _of_times(frames: Frames, bounds: Mapping[float, tuple[float, float]]) -> Iterator[str]:
    """Rows of metrics, and rounds, have the energy until their time, and of their time: within its least and most."""
    rows = [*zip(frames.metrics["time_s"].tolist(), frames.metrics[ENERGY].tolist(), strict=True)]
    wrong = [f"metrics at {now} s: {ENERGY} is {energy}, its events add up to {_span(*bounds[now])}"
             for now, energy in rows if not _within(energy, *bounds[now])]  # fmt: skip
    columns = ["start_s", "end_s", ENERGY] if frames.has_rounds else []
    for number, (start, end, energy) in enumerate(frames.rounds[columns].itertuples(index=False)):
        (before, until), (least, most) = bounds[start], bounds[end]
        if not _within(energy, least - until, most - before):
            span = _span(least - until, most - before)
            wrong.append(f"rounds: {ENERGY} of round {number} is {energy}, its events add up to {span}")
    yield from wrong[:SHOWN]


def _within(value: float, least: float, most: float) -> bool:
    slack = ROUNDING * (1 + abs(most))
    return bool(least - slack <= value <= most + slack)


def _span(least: float, most: float) -> str:
    return f"{most}" if least == most else f"{least} to {most}"


def _power(rows: pd.DataFrame) -> Power:
    """Return what a party draws by its rows of the table."""
    watts, each = (dict(zip(rows["state"], rows[name], strict=True)) for name in ("watts", "joules_each"))
    return Power.model_construct(
        **{state: watts[state] for state in STATES}, per_byte=each["radio"], per_flop=each["compute"]
    )


def _rates(power: Power) -> str:
    each = f"{power.per_byte:g} J a byte, {power.per_flop:g} J an operation"
    return f"{power.idle:g} W idle, {power.computing:g} W computing, {power.radio:g} W radio, {each}"


def _spans(events: pd.DataFrame) -> PartySpans:
    """Return the spans that events tell."""
    columns = {name: events[name].to_numpy() for name in ("start_s", "end_s", "bytes")}
    for column in ("party", "peer"):
        names = events[column].cat
        columns[column] = np.array([*map(party_number, names.categories), -1])[names.codes]
    kinds = events["kind"].cat
    return spans_of({**columns, "kind": kinds.codes.to_numpy()}, [*kinds.categories])
