"""Compare a run with its repetition: byte by byte, and where bytes differ, the first value that does."""

from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from vflsim.errors import ResultsError
from vflsim.files import content
from vflsim.results.store.folder import RUN
from vflsim.results.store.pages import read_tensors
from vflsim.results.store.run import StoredRun
from vflsim.results.store.schema import read_table

_MAY_DIFFER = {"scenario", "wall_clock_s", "files", "inputs", "versions", "path", "together"}
"""Facts of ``run.json`` that a repetition need not have."""


def differences(stored: StoredRun, again: StoredRun) -> Iterator[str]:
    """Yield a sentence for every file whose bytes differ, with its first differing value, and for every such fact."""
    names = {entry.name for run in (stored, again) for entry in run.folder.iterdir() if not entry.name.startswith(".")}
    for name in sorted(names - {RUN}):
        try:
            one, other = (run.folder / name for run in (stored, again))
            if not other.is_file():
                yield f"{name} is there, but not when computed again"
            elif not one.is_file():
                yield f"{name} is missing, but not when computed again"
            elif content(one) != content(other):
                yield _within(name, stored, again) or f"{name}: the same values in other bytes"
        except (ResultsError, OSError) as error:
            yield f"{name} cannot be compared: {error}"
    yield from _facts(stored, again)


def first_differences(stored: StoredRun, shorter: StoredRun) -> Iterator[str]:
    """Yield a sentence for every table that does not begin as that of a shorter run, and for other ends of the run.

    A shorter run has its last row of metrics, and unfinished events, where the stored one continues: they do not count.
    """
    if shorter.failed:
        yield f"status is {stored.info.status}, computed again {shorter.info.status}: {shorter.info.error}"
    for name, rows in rows_in_common(shorter).items():
        try:
            one, other = (read_table(run.folder / f"{name}.parquet").slice(0, rows) for run in (stored, shorter))
            if difference := _first_value(name, one, other):
                yield difference
        except ResultsError as error:
            yield f"{name}.parquet cannot be compared: {error}"


def rows_in_common(shorter: StoredRun) -> dict[str, int]:
    """Count the rows of each table that a shorter run has in common with one that continues."""
    rows = {"metrics": shorter.table("metrics").num_rows - 1}
    if shorter.has("rounds"):
        rows["rounds"] = shorter.table("rounds").num_rows
    if shorter.has("events"):
        outcomes = shorter.table("events", ("outcome",))["outcome"].cast(pa.string()).to_pylist()
        rows["events"] = next((row for row, outcome in enumerate(outcomes) if outcome == "unfinished"), len(outcomes))
    return rows


def _facts(stored: StoredRun, again: StoredRun) -> Iterator[str]:
    """Yield a sentence for every fact of ``run.json`` that differs."""
    one, other = (run.info.model_dump(mode="json", exclude=_MAY_DIFFER) for run in (stored, again))
    for name, value in one.items():
        if other[name] != value:
            yield f"{RUN}: {name} is {value}, computed again {other[name]}"


def _within(name: str, stored: StoredRun, again: StoredRun) -> str:
    """Describe the first difference within a file; empty if its values are the same."""
    one, other = (run.folder / name for run in (stored, again))
    if name.endswith(".parquet"):
        return _first_value(name.removesuffix(".parquet"), read_table(one), read_table(other))
    if name.endswith(".safetensors"):
        return _first_weight(name.removesuffix(".safetensors"), read_tensors(one), read_tensors(other))
    return f"{name} has other bytes"


def _first_value(name: str, one: pa.Table, other: pa.Table) -> str:
    """Describe the first value in which two tables differ, or other columns or rows; empty if they are the same."""
    if one.column_names != other.column_names:
        return f"{name}: columns are {', '.join(one.column_names)}; computed again {', '.join(other.column_names)}"
    places = [(row, column) for column in one.column_names if (row := _row(one[column], other[column])) is not None]
    if not places:
        same = one.num_rows == other.num_rows
        return "" if same else f"{name}: {one.num_rows} rows, computed again {other.num_rows}"
    row, column = min(places, key=lambda each: each[0])
    key = one.column_names[0]
    place = f"row {row}" if column == key else f"row {row} ({key} {one[key][row].as_py()})"
    return f"{name}, {place}: {column} is {one[column][row].as_py()!r}, computed again {other[column][row].as_py()!r}"


def _row(one: pa.ChunkedArray, other: pa.ChunkedArray) -> int | None:
    """Find the first row, of those that both have, where two columns differ; NaN equals NaN."""
    if pa.types.is_floating(one.type) and one.type == other.type:
        rows = min(len(one), len(other))
        return _first_bits(*(torch.tensor(column.to_numpy()[:rows]) for column in (one, other)))
    pairs = zip(count(), one.to_pylist(), other.to_pylist(), strict=False)
    return next((row for row, mine, its in pairs if mine != its), None)


def _first_weight(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str:
    """Describe the first weight in which two runs differ, or other tensors; empty if they are the same."""
    if one.keys() != other.keys():
        return f"{name}: tensors are {', '.join(sorted(one))}; computed again {', '.join(sorted(other))}"
    for key, mine in sorted(one.items()):
        its = other[key]
        if (mine.shape, mine.dtype) != (its.shape, its.dtype):
            shapes = [f"{tuple(each.shape)} of {each.dtype}" for each in (mine, its)]
            return f"{name}: {key} is {shapes[0]}, computed again {shapes[1]}"
        if (place := _first_bits(mine.reshape(-1), its.reshape(-1))) is not None:
            index = ", ".join(str(int(each)) for each in np.unravel_index(place, tuple(mine.shape)))
            values = [each.reshape(-1)[place].item() for each in (mine, its)]
            return f"{name}: {key}[{index}] is {values[0]!r}, computed again {values[1]!r}"
    return ""


def _first_bits(one: Tensor, other: Tensor) -> int | None:
    """Find the first place where two vectors of one dtype have other bits."""
    if not len(one):
        return None
    mine, its = (each.contiguous().view(torch.uint8).view(len(each), -1) for each in (one, other))
    places = (mine != its).any(dim=1).nonzero()
    return int(places[0]) if len(places) else None
