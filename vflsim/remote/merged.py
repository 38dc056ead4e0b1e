"""What the server and all clients have recorded of a live run, as one outcome."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping
from itertools import pairwise

import pyarrow as pa

from vflsim.remote.energy import energy_of, without_flops
from vflsim.remote.parts import ClientPart
from vflsim.remote.recorder import LiveRecorder
from vflsim.results.store.energy import ENERGY_BY_PARTY
from vflsim.results.store.schema import ENERGY, RunTables
from vflsim.simulation.run import Outcome, tables_of
from vflsim.timing.power import Power


def merged(
    outcome: Outcome,
    recorder: LiveRecorder,
    parts: Mapping[int, ClientPart],
    end: float,
    powers: Mapping[int, Power],
) -> Outcome:
    """Add the clients' ``parts`` to the server's outcome of a run that has lasted until ``end`` (s).

    ``powers``: what the parties draw whose energy is counted; empty where no events of a client are at hand.
    """
    events, weights = recorder.events, dict(outcome.weights)
    for part in parts.values():
        events.extend(part.rows, part.kinds)
        weights |= part.weights
    events.end_at(end)
    extra = {name: table for name, table in outcome.extra.items() if name != ENERGY_BY_PARTY}
    if powers:
        extra[ENERGY_BY_PARTY] = _count_energy(recorder, powers, end)
    elif recorder.meter is not None:
        recorder.meter = None  # it has not been told all
    recorder.events = without_flops(events)
    count = len(recorder.events) if recorder.keep == "events" else 0
    info = outcome.info.model_copy(update={"counts": {**outcome.info.counts, "events": count}})
    tables = tables_of(recorder)
    return dataclasses.replace(outcome, tables=tables, weights=weights, info=info, extra=extra)


def _count_energy(recorder: LiveRecorder, powers: Mapping[int, Power], end: float) -> pa.Table:
    """Add the energy to the rows of rounds and metrics; return that of all parties by what they did."""
    rounds, rows = recorder.round_rows, recorder.metric_rows
    times = [*rounds.end_s, *(row["time_s"] for row in rows)]
    energy = energy_of(recorder.events, powers, times, end)
    ends, of_rows = energy.until[: len(rounds)], energy.until[len(rounds) :]
    rounds.energy_j = array("d", [until - before for before, until in pairwise((0.0, *ends))])
    for row, joules in zip(rows, of_rows, strict=True):
        row[ENERGY] = joules
    return energy.by_party


def without_energy(outcome: Outcome) -> Outcome:
    """Return an outcome of a run that has failed without its energy, of which the clients know a part."""
    tables = {
        name: table.drop_columns([ENERGY]) if ENERGY in table.column_names else table
        for name, table in outcome.tables.named().items()
    }
    extra = {name: table for name, table in outcome.extra.items() if name != ENERGY_BY_PARTY}
    return dataclasses.replace(outcome, tables=RunTables(**tables), extra=extra)
