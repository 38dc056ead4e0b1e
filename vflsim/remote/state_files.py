"""What a client's process keeps on disk in a run, so that another one can take its place."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from vflsim.errors import ResultsError, RunError
from vflsim.protocol import SERVER, Message, PartyLearner, party_name
from vflsim.remote.party import LiveParty
from vflsim.worlds import Events, named, parsed_json, under


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
