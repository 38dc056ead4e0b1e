"""A client's part of the results: its events and weights, which its process writes and never sends."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from vflsim.errors import ResultsError
from vflsim.files import array_of, json_of
from vflsim.remote.built import OwnParty
from vflsim.results.store.write import errors_named, write_tensors, written_aside
from vflsim.streams import party_name
from vflsim.world.order import InputOrder, Item
from vflsim.world.record import Events

_EVENTS, _KINDS, _ORDER, _WEIGHTS = "events.npy", "kinds.json", "order.json", "weights.safetensors"
_RUN = "run.json"


@dataclass(frozen=True, slots=True)
class ClientPart:
    """What one client has recorded: events, the names of their kinds, its order, weights as ``client-3.weight``."""

    rows: np.ndarray
    kinds: tuple[str, ...]
    order: InputOrder
    weights: dict[str, torch.Tensor]


def write_part(folder: Path, made: OwnParty, run: str, ended: bool) -> None:
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
