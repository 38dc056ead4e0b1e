"""Run every scenario file, shortened, at another revision and here; compare tables and weights byte by byte.

``python benchmarks/same_results.py REVISION [--workers N] [SCENARIO …]`` needs git and the scenarios' data
(``VFLSIM_DATA``). It prints every file that differs, with the columns that do, and exits with 1 if there is one. The
other revision runs on one process, this one on N (default: 1).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
SHORT = ("seeds=[0]", "stop.rounds=12", "record=events")
"""Settings of every shortened run. A tenth of the rows is enough where there are many."""
MANY_ROWS = ("fashion_mnist", "fig1", "fig3", "fig4", "table1")


def main() -> None:
    """Compare all scenarios; see above."""
    read = argparse.ArgumentParser()
    read.add_argument("revision")
    read.add_argument("scenario", nargs="*", type=Path)
    read.add_argument("--workers", type=int, default=1)
    given = read.parse_intermixed_args()
    files = given.scenario or sorted((ROOT / "scenarios").rglob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", before, given.revision], cwd=ROOT, check=True)
        try:
            wrong = 0
            for file in files:
                wrong += compared(file.resolve().relative_to(ROOT), before, Path(folder), given.workers)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT, check=True)
    sys.exit(wrong > 0)


def compared(file: Path, before: Path, folder: Path, workers: int) -> int:
    """Run one scenario at both revisions; print what differs, and return how many files do."""
    made = {}
    for name, tree in (("before", before), ("now", ROOT)):
        out = folder / name / file.with_suffix("") if name == "now" else folder / "results" / file.with_suffix("")
        failure = run(tree, file, out, workers if name == "now" else 1)
        if failure:
            print(f"{file}: not compared: {name}: {failure}", flush=True)
            return 0
        made[name] = out
    tables, others = compared_files(made["now"]), compared_files(made["before"])
    differing = [str(path) for path in set(tables) ^ set(others)]
    for path in sorted(set(tables) & set(others)):
        one, other = made["before"] / path, made["now"] / path
        if one.read_bytes() != other.read_bytes():
            apart = columns(one, other) if path.suffix == ".parquet" else ()
            differing.append(f"{path} ({', '.join(apart) or 'only how it is written'})")
    print(f"{file}: {len(tables)} tables and weights, {len(differing)} differ", *differing, sep="\n    ", flush=True)
    return len(differing)


def compared_files(folder: Path) -> list[Path]:
    """List the tables and weights of results, within their folder."""
    found = [*folder.rglob("*.parquet"), *folder.rglob("weights.safetensors")]
    return sorted(path.relative_to(folder) for path in found)


def run(tree: Path, file: Path, out: Path, workers: int) -> str:
    """Run a scenario with the package in ``tree``; return the last line of what it printed if it failed."""
    rows = ("data.train_rows=3000",) if any(part in str(file) for part in MANY_ROWS) else ()
    overrides = [word for change in (*SHORT, *rows) for word in ("--set", change)]
    command = [sys.executable, "-m", "vflsim", "run", file, "--out", out, "--workers", str(workers), *overrides]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip().splitlines()[-1]


def columns(one: Path, other: Path) -> Iterator[str]:
    """Yield the columns in which two tables differ; of numbers also by how much, relative to the largest."""
    before, now = pq.read_table(one), pq.read_table(other)
    for name in dict.fromkeys([*before.column_names, *now.column_names]):
        if name not in before.column_names or name not in now.column_names:
            yield name
        elif before[name] != now[name]:
            yield f"{name}{apart(before[name], now[name])}"


def apart(one: pa.ChunkedArray, other: pa.ChunkedArray) -> str:
    """Return the largest difference of two columns of numbers, relative to the largest number; else nothing."""
    if len(one) != len(other) or not pa.types.is_floating(one.type):
        return ""
    a, b = one.to_numpy(), other.to_numpy()
    with np.errstate(invalid="ignore"):
        return f" by {np.nanmax(np.abs(a - b)) / np.nanmax(np.abs(a)):.0e}"


if __name__ == "__main__":
    main()
