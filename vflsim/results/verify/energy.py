"""Rules about energy: what the events add up to, again, by the same exact sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import pandas as pd

from vflsim.books.energy import BY_PARTY, STATES, Energy, joules
from vflsim.books.spans import PartySpans, spans_of
from vflsim.results.store.columns import ENERGY_BY_PARTY, RANGES
from vflsim.results.store.run import StoredRun
from vflsim.results.store.schema import SERVER
from vflsim.results.verify.frames import ROUNDING, SHOWN, Frames, Rows
from vflsim.setting import Setting
from vflsim.timing.party import Power
from vflsim.world.run_tables import ENERGY


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
    powers = {_number(str(party)): _power(own) for party, own in table.groupby("party", sort=False)}
    timings = () if setting is None else setting.timings
    for party, power in powers.items():
        stated = timings[party].power if party < len(timings) else power
        if stated is None or _rates(stated) != _rates(power):
            said = "nothing" if stated is None else _rates(stated)
            yield f"{path.name}: party {party} draws {_rates(power)}; the scenario says {said}"
    if frames.rounds is not None and ENERGY not in frames.rounds:
        yield f"rounds have no column {ENERGY}, and the metrics have one"
        return
    if frames.events is None or frames.cut:
        return
    energy, spans, times = Energy(powers), _spans(frames.events), np.empty(0)
    known = bool((table["joules_each"] == 0)[table["state"] == "compute"].all())  # events do not tell operations
    if known:
        ends = np.empty(0) if frames.rounds is None else frames.rounds["end_s"]
        times = np.unique(np.concatenate([[0.0], frames.metrics["time_s"], ends]))
    # Without what ends at the very time, and with it: a message that does may count on either side.
    slots = (np.searchsorted(times, at) + np.searchsorted(times, at, "right") for at in (spans.began, spans.ends))
    until = energy.take(spans.bounds(*slots), np.repeat(times, 2).tolist())
    if known:
        yield from _of_times(frames, dict(zip(times.tolist(), zip(until[::2], until[1::2], strict=True), strict=True)))
    again = energy.by_party(frames.end)
    for place, row in enumerate(table.to_dict("records")):
        for column in ("seconds",) if row["state"] == "compute" else ("seconds", "amount"):
            given, found = float(row[column]), float(again[column][place])
            if abs(given - found) > ROUNDING * (1 + abs(found)):
                what = f"{path.name}: {column} of {row['party']}'s {row['state']} are {given:g}"
                yield f"{what}, and its events add up to {found:g}"


def _of_table(table: pd.DataFrame, frames: Frames) -> Iterator[str]:
    """Nothing is negative; joules are powers × seconds and amounts, and together the last row of the metrics."""
    for column, span in RANGES[ENERGY_BY_PARTY].items():
        for _, row in table[span.outside(table[column].to_numpy())].head(SHOWN).iterrows():
            what = f"{ENERGY_BY_PARTY}.parquet: {column} of {row['party']}'s {row['state']}"
            yield f"{what} is {row[column]:g}, and must be {span}"
    expected = pd.Series([*map(joules, *(table[name] for name in BY_PARTY[2:-1]))], table.index, float)
    for _, row in table[(table["joules"] - expected).abs() > ROUNDING * (1 + expected)].head(SHOWN).iterrows():
        yield f"{ENERGY_BY_PARTY}.parquet: joules of {row['party']}'s {row['state']} are not its powers × its seconds"
    last, total = frames.metrics[ENERGY][-1], table["joules"].sum()
    if not frames.cut and abs(last - total) > ROUNDING * (1 + total):
        yield f"metrics: the last {ENERGY} is {last}, and the parties' add up to {total}"


def _of_times(frames: Frames, bounds: Mapping[float, tuple[float, float]]) -> Iterator[str]:
    """Rows of metrics, and rounds, have the energy until their time, and of their time: within its least and most."""
    rows = [*zip(frames.metrics["time_s"].tolist(), frames.metrics[ENERGY].tolist(), strict=True)]
    wrong = [f"metrics at {now} s: {ENERGY} is {given}, its events add up to {_span(*bounds[now])}"
             for now, given in rows if not _within(given, *bounds[now])]  # fmt: skip
    columns = [] if frames.rounds is None else [frames.rounds[name].tolist() for name in ("start_s", "end_s", ENERGY)]
    for number, (start, end, given) in enumerate(zip(*columns, strict=True)):
        (before, until), (least, most) = bounds[start], bounds[end]
        if not _within(given, least - until, most - before):
            span = _span(least - until, most - before)
            wrong.append(f"rounds: {ENERGY} of round {number} is {given}, its events add up to {span}")
    yield from wrong[:SHOWN]


def _within(given: float, least: float, most: float) -> bool:
    slack = ROUNDING * (1 + abs(most))
    return bool(least - slack <= given <= most + slack)


def _span(least: float, most: float) -> str:
    return f"{most}" if least == most else f"{least} to {most}"


def _number(party: str) -> int:
    return 0 if party == SERVER else int(party.removeprefix("client-"))


def _power(rows: pd.DataFrame) -> Power:
    """Return what a party draws by its rows of the table."""
    watts, each = (dict(zip(rows["state"], rows[name], strict=True)) for name in ("watts", "joules_each"))
    return Power.model_construct(
        **{state: watts[state] for state in STATES}, per_byte=each["radio"], per_flop=each["compute"]
    )


def _rates(power: Power) -> str:
    each = f"{power.per_byte:g} J a byte, {power.per_flop:g} J an operation"
    return f"{power.idle:g} W idle, {power.computing:g} W computing, {power.radio:g} W radio, {each}"


def _spans(events: Rows) -> PartySpans:
    """Return the spans that events tell."""
    kinds, columns = events.names("kind"), {name: events[name] for name in ("start_s", "end_s", "bytes")}
    for column in ("party", "peer"):
        names = events.names(column)
        columns[column] = np.array([*map(_number, names.known), -1])[names.codes]
    return spans_of({**columns, "kind": kinds.codes}, kinds.known)
