"""The files of the catalogue: what is on this machine, whether it is the right one, and fetching what is missing."""

import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from platformdirs import user_cache_dir

from vflsim.errors import DataError, of_extra
from vflsim.files import opened
from vflsim.learning.data.catalogue import CATALOGUE, CatalogueEntry, RemoteFile
from vflsim.learning.data.raw import RawData, nearest

VARIABLE = "VFLSIM_DATA"

_verified: set[tuple[Path, int, int, str]] = set()  # files whose checksum was right, by size and time of change


def cache_folder() -> Path:
    """Where ``vflsim data get`` puts its files: the user's cache folder for vflsim."""
    return Path(user_cache_dir("vflsim"))


def folders() -> Iterator[Path]:
    """Folders that are searched, in order: $VFLSIM_DATA if it is set, then the cache."""
    named = os.environ.get(VARIABLE)
    if named:
        yield Path(named)
    yield cache_folder()


def locate(entry: CatalogueEntry, file: RemoteFile) -> Path | None:
    """Find a file of the catalogue, or None."""
    candidates = (folder / entry.folder / file.name for folder in folders())
    return next((path for path in candidates if path.is_file()), None)


def read_entry(entry: CatalogueEntry) -> RawData:
    """Read a data set of the catalogue; nothing is ever fetched.

    Raises DataError when a file is absent, damaged, or has the wrong checksum.
    """
    paths = []
    for file in entry.files:
        path = locate(entry, file)
        if path is None:
            searched = ", ".join(str(folder / entry.folder) for folder in folders())
            fetching = f"fetch it with `vflsim data get {entry.name}`"
            fetching = fetching if file.urls else f"{file.by_hand} and put it into one of them"
            raise DataError(
                f"the file {file.name} is not there",
                f"data set {entry.name}",
                f"in one of {searched}",
                f"{fetching}, or {_variable()} to the folder that holds {entry.folder}/{file.name}",
            )
        verify(path, file)
        paths.append(path)
    raw = entry.read(paths)
    if not all(file.sha256 for file in entry.files):
        _compare(entry, raw, paths)
    return raw


def _compare(entry: CatalogueEntry, raw: RawData, paths: Sequence[Path]) -> None:
    """Without a checksum, tell the right file by what it holds. DataError when that is not what the entry announces."""
    announced = (entry.rows, entry.views, entry.features, entry.classes)
    counts = (raw.rows, len(raw.views), sum(view.width for view in raw.views), len(np.unique(raw.target)))
    if counts != announced:
        words = "{} rows, {} views, {} features and {} classes"
        where = ", ".join(str(path) for path in paths)
        remedy = f"put an intact copy of {entry.files[0].name} in its place"
        raise DataError(f"holds {words.format(*counts)}", where, words.format(*announced), remedy)


def _variable() -> str:
    """Return the remedy for the variable, which may point nowhere."""
    named = os.environ.get(VARIABLE)
    nowhere = named and not Path(named).is_dir()
    return f"correct {VARIABLE} (there is no folder {named!r})" if nowhere else f"set {VARIABLE}"


def verify(path: Path, file: RemoteFile) -> None:
    """Compare a file's SHA-256 with the catalogue's, if known, once per process. DataError when it differs."""
    if not file.sha256:
        return
    try:
        status = path.stat()
        key = (path, status.st_size, status.st_mtime_ns, file.sha256)
        if key in _verified:
            return
        with opened(path) as there:
            digest = hashlib.file_digest(there, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot be read: {error}", str(path), "a readable file", "check its permissions") from error
    if digest != file.sha256:
        what = f"has the wrong checksum: sha256 {digest}"
        remedy = "delete the file and fetch it again with `vflsim data get`"
        raise DataError(what, str(path), f"sha256 {file.sha256}", remedy)
    _verified.add(key)


@dataclass(frozen=True)
class CatalogueRow:
    """One line of ``vflsim data list``; ``where`` is the folder, ``embedded`` or ``absent``."""

    name: str
    rows: int
    features: int
    views: int
    classes: int
    task: str
    where: str
    source: str
    licence: str


def data_list() -> list[CatalogueRow]:
    """List the catalogue, in its own order, and where each data set was found on this machine."""
    return [
        CatalogueRow(e.name, e.rows, e.features, e.views, e.classes, e.task, _where(e), e.source, e.licence)
        for e in CATALOGUE.values()
    ]


def data_get(name: str, folder: Path | str | None = None, progress: bool = False) -> list[Path]:
    """Fetch the files of a data set that are not there yet, and return all its paths (none for embedded sets).

    ``folder`` takes the place of the user's cache folder; point $VFLSIM_DATA at it afterwards. ``progress`` shows a bar
    on the terminal. Raises DataError for an unknown name, when no source can be reached, when the bytes that came do
    not have the pinned checksum, when the folder cannot be written, or when a file can be had by hand only.
    """
    if name not in CATALOGUE:
        raise DataError(f"unknown data set {name!r}", "vflsim data get", nearest(name, CATALOGUE))
    entry = CATALOGUE[name]
    return [_get(entry, file, None if folder is None else Path(folder), progress) for file in entry.files]


def _where(entry: CatalogueEntry) -> str:
    if not entry.files:
        return "embedded"
    paths = [locate(entry, file) for file in entry.files]
    return str(paths[0].parent) if paths[0] and all(paths) else "absent"


def _get(entry: CatalogueEntry, file: RemoteFile, folder: Path | None, progress: bool) -> Path:
    here = locate(entry, file) if folder is None else folder / entry.folder / file.name
    if here is not None and here.is_file():
        verify(here, file)
        return here
    target = (folder or cache_folder()) / entry.folder
    if not file.urls:
        remedy = f"{file.by_hand} and put it into {target}"
        raise DataError(f"{file.name} has no lasting address to fetch it from", f"data set {entry.name}", "", remedy)
    failures = []
    for url in file.urls:
        try:
            return _retrieve(url, file, target, progress)
        except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
            failures.append(f"{url}: {error}")
    remedy = f"try again later, or put {file.name} (sha256 {file.sha256}) into {target} yourself"
    raise DataError(f"{file.name} could not be fetched", f"data set {entry.name}", "; ".join(failures), remedy)


def _retrieve(url: str, file: RemoteFile, target: Path, progress: bool) -> Path:
    with of_extra("download", "a download"):  # slow to import
        import pooch

    bar = _Bar(file.name) if progress else None
    with nullcontext() if bar is None else bar.progress, _quiet(pooch.get_logger()):
        path = pooch.retrieve(
            url,
            known_hash=f"sha256:{file.sha256}",
            fname=file.name,
            path=target,
            downloader=pooch.HTTPDownloader(progressbar=bar or False, timeout=60),
        )
    return Path(path)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bar:
    """The part of tqdm's interface that pooch uses, on top of rich."""

    def __init__(self, name: str) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self.progress = Progress(*columns)
        self.task = self.progress.add_task(name, total=None)
        self.total = 0

    def update(self, size: int) -> None:
        self.progress.update(self.task, total=self.total or None, advance=size)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        self.progress.refresh()
