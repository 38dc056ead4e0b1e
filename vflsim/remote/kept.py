"""What a client's process keeps on disk in a run, so that another one can take its place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vflsim.errors import ResultsError, RunError
from vflsim.files import parsed_json
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.states import named, under
from vflsim.remote.live_party import LiveParty
from vflsim.streams import party_name
from vflsim.world.record import Events


class KeptState:
    """The files of a client in one ``run``: what it has learnt, how often it has drawn, and what it has recorded.

    Invariant: they are whole, and those of the latest computation. A power failure may lose them, the end of the
    process does not.
    """

    def __init__(self, folder: Path, run: str, party: LiveParty, learner: PartyLearner) -> None:
        name = party_name(party.number)
        self._file, self._rows = folder / f"{name}.kept.safetensors", folder / f"{name}.kept.events"
        self._run, self._party, self._learner = run, party, learner
        self._events, self._written = party.run.recorder.events, 0

    def write(self) -> None:
        """Bring the files up to date. Raises ``ResultsError``."""
        state = named("learner", self._learner.state()) | named("wire", self._party.wire.state())
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}
        aside, rows = self._file.with_suffix(".aside"), len(self._events)
        about = {
            "run": self._run,
            "counts": json.dumps(self._party.counts()),
            "kinds": json.dumps(list(self._events.kinds)),
            "rows": str(rows),
        }
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._rows.open("ab" if self._written else "wb") as file:
                file.write(self._events.table[self._written :].tobytes())
            save_file(tensors, aside, about)
            os.replace(aside, self._file)
            self._written = rows
        except (OSError, SafetensorError) as error:
            raise ResultsError(f"it cannot be written: {error}", str(self._file)) from error

    def read(self) -> None:
        """Take up what another process has kept. Raises ``RunError`` if there is nothing of this run."""
        try:
            with safe_open(self._file, "pt") as file:
                about, names = file.metadata() or {}, file.keys()
                tensors = {name: file.get_tensor(name) for name in names}
            rows = np.fromfile(self._rows, Events.row, int(about["rows"]))
            counts, kinds = (parsed_json(about[name]) for name in ("counts", "kinds"))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise self._nothing(f"no file {self._file} can be read") from error
        if about.get("run") != self._run:
            raise self._nothing(f"{self._file} is of another run")
        self._learner.load(under("learner", tensors))
        self._party.wire.load(under("wire", tensors))
        self._party.go_on(counts)
        self._events.extend(rows, kinds)
        self._written = 0  # written anew: a row too many may be in the file

    def remove(self) -> None:
        """Remove the files: the run is over."""
        self._file.unlink(missing_ok=True)
        self._rows.unlink(missing_ok=True)

    def _nothing(self, why: str) -> RunError:
        name = party_name(self._party.number)
        return RunError(
            f"{name} has come back without what its former process had kept: {why}",
            name,
            remedy="start it with the --parts of its former process",
        )
