"""What every format of another tool gives: a server, clients with keys of ``timing``, and notes."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeGuard

import numpy as np

from vflsim.errors import DataError, nearest
from vflsim.files import opened
from vflsim.streams import few


@dataclass(frozen=True)
class ForeignClient:
    """Keys of one entry of ``timing.clients``, and what vflsim leaves out of what the file says of this client."""

    keys: Mapping[str, Any]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Platform:
    """The wanted clients of a file by name; keys of ``timing.server``; constants of formulas."""

    clients: Mapping[str, ForeignClient]
    server: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Wishes:
    """What of a file is wanted: the host that is the ``server``, these hosts or so many of the clients.

    ``clients`` is a number, or names. With ``seed`` they are drawn, otherwise they are the first of the file.
    ``interrupted`` says what an outage does to work under way. ``median_ms`` is the compute time of the median device,
    where a format has relative speeds alone.
    """

    server: str | None = None
    clients: int | Sequence[str] | None = None
    seed: int | None = None
    interrupted: str = "resumed"
    median_ms: float = 10.0


EVERYTHING = Wishes()
"""All clients of a file, in its order."""


class Format(ABC):
    """A format of files: ``title`` says whose it is."""

    title: ClassVar[str]

    has_hosts: ClassVar[bool] = False
    """Whether one of the file's hosts is the server."""

    def __init__(self, paths: Sequence[Path], wishes: Wishes) -> None:
        self.paths, self.wishes = paths, wishes
        if wishes.server is not None and not self.has_hosts:
            what = f"a server named {wishes.server!r} of {self.title}"
            raise DataError(what, str(paths[0]), "a server of a platform, which has hosts", "leave it out")

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Whether the file looks like one of this format."""

    @abstractmethod
    def read(self) -> Platform:
        """Read the wanted clients. Raises DataError for what the file must not hold."""

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Return the wanted clients of these. Raises DataError if they are not all there."""
        wanted, seed = self.wishes.clients, self.wishes.seed
        if not names:
            raise self.error("holds no client", "one client or more that is there at some time")
        if wanted is None:
            return [*names]
        if not isinstance(wanted, int):
            if absent := [name for name in wanted if name not in names]:
                raise self.error(f"has no client {absent[0]!r}", few(names), nearest(absent[0], names))
            return [*wanted]
        if wanted > len(names):
            raise self.error(f"has {len(names):,} clients, and {wanted:,} are wanted", f"at most {len(names):,}")
        if seed is None:
            return [*names[:wanted]]
        drawn = np.random.Generator(np.random.Philox(seed)).permutation(len(names))
        return [names[place] for place in sorted(drawn[:wanted].tolist())]

    @property
    def path(self) -> Path:
        """The only file. Raises DataError for several."""
        if len(self.paths) > 1:
            raise DataError(f"{len(self.paths)} files", str(self.paths[1]), f"one file of {self.title}")
        return self.paths[0]

    def error(self, what: str, allowed: str = "", remedy: str = "", at: str = "") -> DataError:
        """Return the error about the file, or about a place in it."""
        return DataError(what, f"{self.paths[0]}{f': {at}' if at else ''}", allowed, remedy)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number that a float can be, at least 0. True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def brief(value: object) -> str:
    """Return a value as an error shows it: containers, which may be endless, by their kind alone."""
    plain = value is None or isinstance(value, str | bool | int | float)
    if not plain:
        return f"a {type(value).__name__}"
    try:
        text = repr(value)
    except ValueError:  # more digits than Python writes
        return "a huge number"
    return text if len(text) <= 40 else f"{text[:40]}…"


def head(path: Path, most: int = 4096) -> bytes:
    """Return the beginning of a file; nothing of what cannot be read."""
    try:
        with opened(path) as file:
            return file.read(most)
    except OSError:
        return b""
