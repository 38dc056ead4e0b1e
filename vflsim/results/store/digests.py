"""Digests of files as they were written: SHA-256 and, for a table, the number of rows."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.files import opened
from vflsim.results.store.schema import FileFacts


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
