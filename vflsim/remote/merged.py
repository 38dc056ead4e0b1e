"""What the server and all clients have recorded of a live run, as one outcome."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from vflsim.errors import ResultsError
from vflsim.remote.built import OwnParty
from vflsim.remote.energy import energy_of, without_flops
from vflsim.remote.parts import ClientPart, read_part
from vflsim.remote.recorder import LiveRecorder
from vflsim.results.store.columns import ENERGY_BY_PARTY
from vflsim.results.store.schema import RunTables
from vflsim.simulation.replay import ORDER, order_table
from vflsim.simulation.run import Outcome, tables_of
from vflsim.streams import SERVER, party_name
from vflsim.timing.power import Power
from vflsim.world.run_tables import ENERGY


def with_parts(outcome: Outcome, made: OwnParty, folder: Path, run: str, end: float, ordered: bool) -> Outcome:
    """Add the clients' parts of a run in ``folder``, which has lasted until ``end`` (s), to the server's outcome.

    It notes parts that are not there or are damaged. ``ordered``: the order of inputs is kept, too, where events are.
    """
    parts, absent = dict[int, ClientPart](), list[str]()
    for client in made.setting.clients:
        try:
            parts[client] = read_part(folder, client, run)
        except ResultsError:
            absent.append(party_name(client))
    powers = made.setting.powers
    outcome = merged(outcome, made.recorder, parts, end, {} if absent else powers)
    what = "the events, weights and energy" if powers else "the events and weights"
    lacking = f"without {what} of {', '.join(absent)}: no parts in {folder}" if absent else ""
    extra = outcome.extra
    if made.recorder.keep == "events" and not absent and ordered:
        orders = {SERVER: made.recorder.order} | {client: part.order for client, part in parts.items()}
        extra = {**extra, ORDER: order_table(orders)}
    return dataclasses.replace(outcome, extra=extra, note="; ".join(filter(None, [outcome.note, lacking])))


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
    assert recorder.meter is not None, "the run counts energy"
    rounds, rows = recorder.round_rows, recorder.metric_rows
    times = [*rounds["end_s"], *(row["time_s"] for row in rows)]
    energy = energy_of(recorder.events, powers, times, end)
    recorder.meter.rounds = array("d", energy.until[: len(rounds)])
    for row, joules in zip(rows, energy.until[len(rounds) :], strict=True):
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
