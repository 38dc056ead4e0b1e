"""The texts of ``vflsim list``, remembered between calls: to describe all kinds takes the import of PyTorch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

import platformdirs

from vflsim.kinds import TABLES
from vflsim.version import __version__

PRESETS, PARTITIONS = "presets", "partitions"
Texts = tuple[str, ...]


def listed(category: str) -> list[Texts]:
    """Return the texts on every kind of a category of ``vflsim.kinds.TABLES``, partition or preset, in order.

    A kind has three: its name, its keys (``?`` behind those that may be left out) and a line of its description; so has
    a partition, which ``by`` names; a preset has four: its name, its title, its source, and what it adds to that.

    They are read from a file in the user's cache folder, named after the sizes and times of vflsim's own modules and
    presets: a changed module has another file. What cannot be read there is described anew; a folder that cannot be
    written costs time only.

    Example: ``listed("networks")[0][0]`` is ``"fifo"``.
    """
    place = _place(category)
    with suppress(OSError, ValueError):
        found = [tuple(line.split("\t")) for line in place.read_text("utf-8").splitlines()]
        if {len(texts) for texts in found} == {4 if category == PRESETS else 3}:
            return found
    other = {PRESETS: _presets, PARTITIONS: _partitions}
    found = list(other[category]() if category in other else _kinds(category))
    with suppress(OSError):
        _write(place, "".join("\t".join(texts) + "\n" for texts in found))
    return found


def _kinds(category: str) -> Iterator[Texts]:
    for entry in TABLES[category]:
        fields = [(key, field) for key, field in entry.model_fields.items() if key != "kind"]
        ordered = sorted(fields, key=lambda pair: not pair[1].is_required())
        keys = ", ".join(key if field.is_required() else f"{key}?" for key, field in ordered)
        line = (entry.__doc__ or "").strip().splitlines()[0].replace("``", "")
        yield str(entry.model_fields["kind"].default), keys, line


def _presets() -> Iterator[Texts]:
    from vflsim.scenario.presets import Preset, names

    for preset in map(Preset.read, names()):
        yield preset.name, preset.title, preset.source, preset.ours


def _partitions() -> Iterator[Texts]:
    from vflsim.learning.data.partition import WAYS

    return ((way, keys, line) for way, (keys, line) in WAYS.items())


def _place(category: str) -> Path:
    return Path(platformdirs.user_cache_dir("vflsim")) / "listed" / f"{category}-{_digest()}.tsv"


@cache
def _digest() -> str:
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(f"{root} {__version__}".encode())
    for path, size, changed in sorted(_files(root)):
        digest.update(f"\n{path} {size} {changed}".encode())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(Path(entry.path))
            elif entry.name.endswith((".py", ".yaml")):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns


def _write(place: Path, text: str) -> None:
    """Put the file there whole, and remove those of the same category that other modules have written."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=place.parent, suffix=".part", delete=False) as file:
        file.write(text)
    os.replace(file.name, place)
    category = place.name.rpartition("-")[0]
    for older in place.parent.glob(f"{category}-????????????????.tsv"):
        if older != place:
            older.unlink(missing_ok=True)
