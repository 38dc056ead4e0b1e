"""A client's files: what another process needs to take its place, and its part of the results."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from vflsim.errors import ResultsError, RunError
from vflsim.protocol import SERVER, Message, PartyLearner, party_name
from vflsim.remote.party import LiveParty, LocalParty
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
    named,
    order_table,
    parsed_json,
    tables_of,
    under,
    write_tensors,
    written_aside,
)


class StateFiles:
    """The files of a client in one ``run``: what it has learnt, how often it has drawn, and what it has recorded.

    Invariant: they are whole, and those of the latest computation. A power failure may lose them, the end of the
    process does not. Where what the client sends is masked, its secrets are in them: then they are on the disk before
    an upload leaves, since a process that goes on from an older state would use a mask twice, or another one for what
    it has sent. Others cannot read them. What does not change once it is there has files of its own, written once.
    """

    def __init__(self, folder: Path, run: str, party: LiveParty, learner: PartyLearner) -> None:
        name = party_name(party.number)
        self._file, self._rows = folder / f"{name}.kept.safetensors", folder / f"{name}.kept.events"
        self._run, self._party, self._learner = run, party, learner
        self._events, self._written = party.run.recorder.events, 0
        self._unchanging, self._files = set[str](), 0

    def write(self) -> None:
        """Bring the files up to date. Raises ``ResultsError``."""
        state = named("learner", self._learner.state()) | named("wire", self._party.wire.state())
        state |= named("under_way", self._learner.under_way()) | named("party", self._party.under_way())
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}
        aside, rows = self._file.with_suffix(".aside"), len(self._events)
        about = {
            "run": self._run,
            "counts": json.dumps(self._party.counts()),
            "kinds": json.dumps(list(self._events.kinds)),
            "rows": str(rows),
        }
        unchanging = {name: kept for name, kept in self._learner.unchanging().items() if name not in self._unchanging}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._rows.open("ab" if self._written else "wb") as file:
                file.write(self._events.table[self._written :].tobytes())
            if unchanging:
                content = {name: tensor.detach().clone().contiguous() for name, tensor in unchanging.items()}
                self._replace(aside, save(content, {"run": self._run}), self._unchanging_file(self._files))
                self._files += 1
                self._unchanging |= unchanging.keys()
            self._replace(aside, save(tensors, about | {"files": str(self._files)}), self._file)
            self._written = rows
        except (OSError, SafetensorError) as error:
            raise ResultsError(f"it cannot be written: {error}", str(self._file)) from error

    def read(self) -> None:
        """Take up what another process has kept. Raises ``RunError`` if there is nothing of this run."""
        try:
            about, tensors = _read(self._file)
            kept = [_read(self._unchanging_file(number)) for number in range(int(about["files"]))]
            rows = np.fromfile(self._rows, Events.row, int(about["rows"]))
            counts, kinds = (parsed_json(about[name]) for name in ("counts", "kinds"))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise self._nothing(f"no file {self._file} can be read") from error
        if any(said.get("run") != self._run for said in (about, *(said for said, _ in kept))):
            raise self._nothing(f"{self._file} is of another run")
        unchanging = {name: tensor for _, held in kept for name, tensor in held.items()}
        self._unchanging, self._files = {*unchanging}, len(kept)
        self._learner.load(under("learner", tensors))
        self._party.wire.load(under("wire", tensors))
        self._party.go_on(counts)
        self._party.take_up(under("party", tensors))
        self._learner.take_up(under("under_way", tensors) | unchanging, self._as_sent)
        self._events.extend(rows, kinds)
        self._written = 0  # written anew: a row too many may be in the file

    def remove(self) -> None:
        """Remove the files: the run is over."""
        for file in (self._file, self._rows, *map(self._unchanging_file, range(self._files))):
            file.unlink(missing_ok=True)

    def _unchanging_file(self, number: int) -> Path:
        return self._file.with_name(f"{party_name(self._party.number)}.kept.{number}.safetensors")

    def _replace(self, aside: Path, content: bytes, file_: Path) -> None:
        """Put a file in the place of the former one, readable by its owner alone."""
        aside.unlink(missing_ok=True)
        lasting = self._learner.serves_once
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(aside, file_)
        if lasting:
            with contextlib.suppress(PermissionError):  # Windows opens no folder
                folder = os.open(self._file.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)

    def _as_sent(self, message: Message) -> None:
        message.sender, message.receiver = self._party.number, SERVER
        self._party.wire.carry(message)

    def _nothing(self, why: str) -> RunError:
        name = party_name(self._party.number)
        return RunError(
            f"{name} has come back without what its former process had kept: {why}",
            name,
            remedy="start it with the --parts of its former process",
        )


def _read(file_: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    with safe_open(file_, "pt") as file:
        about, names = file.metadata() or {}, file.keys()
        return about, {name: file.get_tensor(name) for name in names}


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
    outcome: Outcome, recorder: LiveRecorder, parts: Mapping[int, ClientPart], end: float, powers: Mapping[int, Power]
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
