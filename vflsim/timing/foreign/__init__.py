"""Timing from files of other tools, as presets: device traces, platforms, measured links.

Each format has a class with two methods: ``recognises`` looks at a file's beginning, ``read`` reads the wanted
clients. What a file says of a client becomes its entry of ``timing.clients``; what vflsim cannot express, or what the
other tool's own model would add, is a note. Nothing of a file is run: pickles are read without any class in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vflsim.errors import DataError
from vflsim.timing.foreign.base import EVERYTHING, Format, Wishes
from vflsim.timing.foreign.devices import FedScaleAvailability, FedScaleCapacity, FlashStates, Links
from vflsim.timing.foreign.simgrid import SimGridPlatform

FORMATS: dict[str, type[Format]] = {
    "fedscale-availability": FedScaleAvailability,
    "fedscale-capacity": FedScaleCapacity,
    "flash-states": FlashStates,
    "simgrid": SimGridPlatform,
    "links": Links,
}
"""The formats by name; the first that recognises a file reads it."""


@dataclass(frozen=True)
class ForeignTiming:
    """The preset of a file, and what to know of it: ``names`` are those of its clients, in order."""

    preset: dict[str, Any]
    names: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())


def read_timing(sources: Sequence[str | Path], format: str | None = None, wishes: Wishes = EVERYTHING) -> ForeignTiming:
    """Read files of one format as a preset of ``timing``.

    ``sources`` are a file, or of format ``links`` a file or a folder for each client. Raises DataError for a file that
    cannot be read, or is in no known format, and for a server or clients that it does not have.

    Example::

        timing = read_timing(["client_behave_trace.json"], wishes=Wishes(clients=8))
        timing.preset["timing"]["clients"][0]["availability"]["period"]
    """
    paths = [Path(source) for source in sources]
    if not paths:
        raise DataError("no file", "read_timing", "one file or more")
    reader = _format(paths, format)(paths, wishes)
    platform = reader.read()
    entries: list[dict[str, Any]] = [
        {"select": number, **entry.keys}
        for number, entry in enumerate(platform.clients.values(), start=1)
        if entry.keys
    ]
    timing = {**({"server": dict(platform.server)} if platform.server else {}), "clients": entries}
    preset: dict[str, Any] = {"title": reader.title, "source": ", ".join(path.name for path in paths)}
    constants = dict(platform.constants)
    preset |= {"constants": constants} if constants else {}
    notes = (*platform.notes, *dict.fromkeys(note for entry in platform.clients.values() for note in entry.notes))
    return ForeignTiming({**preset, "timing": timing}, (*platform.clients,), notes)


def _format(paths: Sequence[Path], name: str | None) -> type[Format]:
    if name is not None:
        return FORMATS[name]
    for each in FORMATS.values():
        if each.recognises(paths[0]):
            return each
    what, remedy = "is in no format that is known", "name it with --format"
    raise DataError(what, str(paths[0]), ", ".join(f"{key} ({each.title})" for key, each in FORMATS.items()), remedy)


__all__ = ["FORMATS", "ForeignTiming", "Wishes", "read_timing"]
