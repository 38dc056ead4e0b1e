"""The rows of several files, aligned by sample id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vflsim.errors import DataError
from vflsim.learning.data.facts import Align, Alignment, FileRows

if TYPE_CHECKING:
    import pandas as pd

Ids: TypeAlias = "pd.Index[Any]"
_ALIKE = "write the ids alike: they are numbers in one file and text in the other"


def aligned(
    rule: Align, files: Sequence[Path], ids: Sequence[Ids], parties: int, label: int
) -> tuple[Ids, Alignment | None]:
    """Return the ids of the rows to use, in the order of the first file, and what that leaves out, if anything.

    ``ids`` are those of ``files``, unique in each; the first ``parties`` files hold features, and the one at ``label``
    the labels. ``outer`` uses the labelled rows of any party, those of the first file first. Raises DataError if
    ``rule`` is ``exact`` and ids differ, and if no row is left, or none of a file; all with the counts.
    """
    used = ids[0]
    for file, other in zip(files[1:], ids[1:], strict=True):
        if rule == "exact":
            _same(used, other, files[0], file)
        used = used[used.isin(other)]
    if rule == "outer":
        used = ids[0]
        for other in ids[1:parties]:
            used = used.append(other[~other.isin(used)])
        used = used[used.isin(ids[label])]
    kept = [int(each.isin(used).sum()) for each in ids]
    if not all(kept):
        counts = ", ".join(f"{file.name} has {len(each):,}" for file, each in zip(files, ids, strict=True))
        alike = len({each.dtype.kind in "iu" for each in ids}) == 1
        remedy = "name the column that holds the same ids in all files" if alike else _ALIKE
        what = "no id stands in every file"
        if rule == "outer":
            what = f"no id of {files[kept.index(0)].name} has a label in {files[label].name}"
        raise DataError(f"{what}: {counts}", ", ".join(map(str, files)), "shared ids", remedy)
    if all(len(each) == count == len(used) for each, count in zip(ids, kept, strict=True)):
        return used, None
    rows = tuple(FileRows(file.name, len(each), count) for file, each, count in zip(files, ids, kept, strict=True))
    return used, Alignment(rule, len(used), rows)


def _same(first: Ids, other: Ids, first_file: Path, other_file: Path) -> None:
    parts = []
    for ids, there, here in (
        (first.difference(other), first_file, other_file), (other.difference(first), other_file, first_file)
    ):  # fmt: skip
        if len(ids):
            example = ids.tolist()[0]
            parts.append(f"{len(ids):,} ids of {there.name} are missing in {here.name} (such as {example!r})")
    if parts:
        remedy = "keep the ids that all files share, or set `align: inner`"
        remedy = remedy if (first.dtype.kind in "iu") == (other.dtype.kind in "iu") else _ALIKE
        allowed = "with `align: exact`, the same set of ids in every file, in any order"
        raise DataError("; ".join(parts), str(other_file), allowed, remedy)
