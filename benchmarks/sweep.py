"""Two keys × three protocols × two seeds, on one worker and on two: how busy a sweep keeps its workers.

Times the runs of a sweep from its first to its last, the start of the workers included, and prints the ratio; all
Parquet files must be equal. Run on idle cores: python benchmarks/sweep.py [WORKERS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from vflsim.studies.plan import axes_of, planned
from vflsim.studies.sweep import run_sweep
from vflsim.vocabulary.execution_options import RunOptions

OVER = {"t-sync.t": [2, 4], "training.batch": [512, 1078]}
OVERRIDES = ["seeds=[0, 1]", "protocols.ignore=null", "protocols.fedvs=null", "protocols.centralised=null"]
OVERRIDES += ["stop.time=120 s", "protocols.wait.stop.time=1800 s"]


def tables(folder: Path) -> dict[str, bytes]:
    """The Parquet files in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def main(workers: int) -> None:
    plan = planned("quickstart", axes_of("quickstart", OVER, OVERRIDES), overrides=OVERRIDES)
    distinct = len({(point.identity(name).digest, seed) for point in plan.points for name, seed in point.runs})
    print(f"{len(plan.points)} points, {plan.runs} runs, {distinct} of them different")
    seconds, found = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, workers):
            began, out = time.perf_counter(), Path(folder, str(count))
            assert not run_sweep(plan, out, options=RunOptions(workers=count, checkpoint_every=None)).failures
            seconds[count], found[count] = time.perf_counter() - began, tables(out)
            print(f"{count} worker{'s' * (count > 1)}: {seconds[count]:.1f} s")
    assert found[1] == found[workers], "the number of workers changes no byte"
    print(f"{workers} workers are {seconds[1] / seconds[workers]:.2f} × as fast as one, with the same files")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
