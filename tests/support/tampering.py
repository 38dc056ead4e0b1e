"""Changing results after they were written, with every digest rewritten to fit, so that none shows the change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vflsim.results.store.write import facts_of


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file; ``change`` alters the object in place."""
    page = json.loads(path.read_text())
    change(page)
    path.write_text(json.dumps(page, indent=2) + "\n")


def rewrite(path: Path, change: Callable[[dict[str, list[Any]]], object]) -> None:
    """Change a Parquet file; ``change`` alters lists by column in place. Types stay."""
    table = pq.read_table(path, partitioning=None)
    columns = table.to_pydict()
    change(columns)
    arrays = [
        pa.array(columns[field.name], pa.string()).dictionary_encode().cast(field.type)
        if pa.types.is_dictionary(field.type)
        else pa.array(columns[field.name], field.type)
        for field in table.schema
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=table.schema), path, compression="zstd", version="2.6")


def relist(folder: Path) -> None:
    """Rewrite every digest of a results folder."""
    for page in folder.glob("*/seed-*/run.json"):
        files = {each.name: facts_of(each).model_dump() for each in sorted(page.parent.iterdir()) if each != page}
        edit(page, lambda info, files=files: info.update(files=files))
    manifest = folder / "manifest.json"
    edit(
        manifest,
        lambda page: page.update(files={name: facts_of(folder / name).model_dump() for name in page["files"]}),
    )
