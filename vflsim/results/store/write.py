"""Write runs: a folder appears whole or not at all, equal tables give equal bytes, and digests tell what was written.

Writing happens in a hidden folder beside the final place, which is then renamed. Parquet files contain no time stamp
and nothing about the machine; wall-clock figures are in ``run.json`` alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.errors import ResultsError
from vflsim.files import opened
from vflsim.results.store.folder import (
    RUN,
    SEED,
    VIEWS,
    WEIGHTS,
    sync,
    write_bytes,
    write_whole,
    written_aside,
)
from vflsim.results.store.pages import FileFacts, RunInfo
from vflsim.results.store.schema import Record, RunTables
from vflsim.vocabulary.on_demand import pd, torch


def facts_of(path: Path) -> FileFacts:
    """Compute a file's digest. Raises OSError or ArrowException if it cannot be read."""
    return FileFacts(sha256=_sha256(path), rows=_rows(path))


def changes(folder: Path, files: Mapping[str, FileFacts]) -> Iterator[str]:
    """Yield a sentence for every listed file that is missing or has changed."""
    for name, written in files.items():
        path = folder / name
        try:
            if not path.is_file():
                yield f"{name} is missing"
            elif _sha256(path) != written.sha256:
                yield f"{name} has changed since it was written (another SHA-256){_rows_instead(path, written)}"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror or error}"


def strangers(folder: Path, known: Container[str]) -> Iterator[str]:
    """Yield a sentence for every entry of a folder that is not among the files ``known``."""
    for entry in sorted(folder.iterdir()):
        if entry.name not in known:
            yield f"{entry.name} is none of the files that were written here"


def _sha256(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows(path: Path) -> int | None:
    if path.suffix != ".parquet":
        return None
    rows: int = pq.read_metadata(path).num_rows
    return rows


def _rows_instead(path: Path, written: FileFacts) -> str:
    with contextlib.suppress(OSError, pa.ArrowException):
        if (rows := _rows(path)) != written.rows:
            return f": {rows} rows instead of {written.rows}"
    return ""


ROW_GROUP = 131_072


def write_run(
    folder: Path | str,
    tables: RunTables,
    weights: Mapping[str, torch.Tensor],
    info: RunInfo,
    record: Record = "events",
    extra: Mapping[str, pa.Table] | None = None,
    views: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write one run as ``folder``, whole or not at all.

    An existing run is replaced once the new one is complete. ``record`` selects the tables to keep; ``extra`` are
    tables that the protocol recorded itself, written as ``<name>.parquet``; ``views`` is what parties have received.
    ``run.json`` is ``info`` with the digests of all other files. Raises ResultsError with the path if the disk is full
    or the place is not writable; then no partial files remain, and an older run stays as it was.
    """
    folder = Path(folder)
    tensors = {WEIGHTS: weights} | ({} if views is None else {VIEWS: views})
    with written_aside(folder) as aside:
        aside.mkdir()
        for name, table in {**(extra or {}), **tables.kept(record).named()}.items():
            _write_table(aside / f"{name}.parquet", table)
        for file, named in tensors.items():
            write_tensors(aside / file, named, {SEED: str(info.seed)})
        files = {entry.name: facts_of(entry) for entry in sorted(aside.iterdir())}
        page = info.model_copy(update={"files": files})
        write_bytes(aside / RUN, (page.model_dump_json(indent=2) + "\n").encode())
        sync(aside)


def write_file(path: Path | str, content: bytes | str | pa.Table | Iterator[bytes]) -> Path:
    """Write one file (a table as Parquet, parts joined), whole or not at all. Raises ResultsError with the path.

    Parts are written one by one, so the whole need not fit into memory.
    """
    if not isinstance(content, pa.Table):
        return write_whole(path, content)
    path = Path(path)
    with written_aside(path) as aside:
        _write_table(aside, content)
    return path


def frame_table(frame: pd.DataFrame) -> pa.Table:
    """Convert a frame of numbers, truth values and text to an Arrow table; what is not there is null."""
    types = {"f": pa.float64(), "i": pa.int64(), "b": pa.bool_()}
    return pa.table({name: pa.array(frame[name], types.get(frame[name].dtype.kind, pa.string())) for name in frame})


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], about: Mapping[str, str] | None = None) -> None:
    """Write tensors as safetensors, in the order of their names, flushed to disk; nothing is put aside.

    ``about`` is the file's metadata. Raises OSError if there is no room. Tensors that fill their storage alone are
    written from where they are; of the others one copy is made.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain: dict[str, torch.Tensor] = {}
    storages = set[int]()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        shared = storage.nbytes() > tensor.nbytes or storage.data_ptr() in storages
        storages.add(storage.data_ptr())
        plain[name] = tensor.clone() if shared else tensor
    try:
        save_file(plain, path, None if about is None else dict(about))
    except SafetensorError as error:  # most likely an error of the operating system
        raise OSError(str(error)) from error
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


def _write_table(path: Path, table: pa.Table) -> None:
    with open(path, "xb") as file:
        pq.write_table(table, file, compression="zstd", row_group_size=ROW_GROUP, version="2.6")
        file.flush()
        os.fsync(file.fileno())


def place_run(source: Path, place: Path) -> None:
    """Copy the run in ``source`` to ``place``, whole or not at all; an existing run is replaced.

    Raises ResultsError with the path.
    """
    with written_aside(place) as aside:
        shutil.copytree(source, aside)


def write_arrived(place: Path, info: RunInfo, opened: Callable[[str], AbstractContextManager[BinaryIO]]) -> None:
    """Write the files of a run, which ``opened`` gives by name, into its folder ``place``.

    Raises ResultsError if a file is not as ``info`` lists it, or cannot be written.
    """
    files = info.files or {}
    if strange := foreign(info):
        raise ResultsError(f"{strange!r} is no file of a run", str(place))
    with written_aside(place) as aside:
        aside.mkdir()
        for name in (*files, RUN):
            with opened(name) as file, open(aside / name, "xb") as copy:
                shutil.copyfileobj(file, copy)
        if problems := [*changes(aside, files)]:
            raise ResultsError(problems[0], str(place))


def foreign(info: RunInfo) -> str:
    """Return the name of a listed file that would be outside a run's folder, if any."""
    return next((name for name in info.files or {} if Path(name).name != name or name == RUN), "")
