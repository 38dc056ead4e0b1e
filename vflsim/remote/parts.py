"""A client's part of the results: its events and weights, which its process writes and never sends."""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from vflsim.errors import ResultsError
from vflsim.protocol import SERVER, party_name
from vflsim.remote.party import LocalParty
from vflsim.remote.recorder import LiveRecorder, energy_of, without_flops
from vflsim.worlds import (
    ENERGY,
    ENERGY_BY_PARTY,
    ORDER,
    Events,
    InputOrder,
    Item,
    Outcome,
    Power,
    RunTables,
    array_of,
    errors_named,
    json_of,
    order_table,
    tables_of,
    write_tensors,
    written_aside,
)

_EVENTS, _KINDS, _ORDER, _WEIGHTS = "events.npy", "kinds.json", "order.json", "weights.safetensors"
_RUN = "run.json"


@dataclass(frozen=True, slots=True)
class ClientPart:
    """What one client has recorded: events, the names of their kinds, its order, weights as ``client-3.weight``."""

    rows: np.ndarray
    kinds: tuple[str, ...]
    order: InputOrder
    weights: dict[str, torch.Tensor]


def write_part(folder: Path, made: LocalParty, run: str, ended: bool) -> None:
    """Write a client's part of a run as ``folder/client-3``, whole or not at all. Raises ResultsError.

    ``ended``: the run has, so the part can be read.
    """
    name = party_name(made.node.party)
    place, events = folder / name, made.shared.recorder.events
    with errors_named(place):
        folder.mkdir(parents=True, exist_ok=True)
        with written_aside(place) as aside:
            aside.mkdir()
            np.save(aside / _EVENTS, np.frombuffer(events.table.tobytes(), np.uint8), allow_pickle=False)
            (aside / _RUN).write_text(json.dumps({"run": run, "ended": ended}), "utf-8")
            (aside / _KINDS).write_text(json.dumps(list(events.kinds)), "utf-8")
            (aside / _ORDER).write_text(json.dumps(made.recorder.order.items), "utf-8")
            weights = {f"{name}.{key}": tensor for key, tensor in made.node.learner.weights().items()}
            write_tensors(aside / _WEIGHTS, weights)


def read_part(folder: Path, party: int, run: str) -> ClientPart:
    """Read a client's part of a run that has ended. Raises ResultsError if it is absent, damaged, or of another run."""
    place = folder / party_name(party)
    try:
        if (said := json_of(place / _RUN)) != {"run": run, "ended": True}:
            raise ValueError(f"it is of run {said}")
        rows = np.frombuffer(array_of(place / _EVENTS).tobytes(), Events.row)
        kinds = json_of(place / _KINDS)
        inputs = [Item(str(what), int(sender), int(number)) for what, sender, number in json_of(place / _ORDER)]
        weights = load_file(place / _WEIGHTS)
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        raise ResultsError(f"no part of {party_name(party)} can be read: {error}", str(place)) from error
    return ClientPart(rows, tuple(map(str, kinds)), InputOrder(inputs), weights)


def with_parts(outcome: Outcome, made: LocalParty, folder: Path, run: str, end: float, ordered: bool) -> Outcome:
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
