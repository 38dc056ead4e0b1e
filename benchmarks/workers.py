"""What runs side by side take: the memory of each worker, what its start costs, and how many runs end in a second.

Fashion-MNIST with 28 clients, ``synchronous``, two runs for each worker. A study of each number of workers runs in a
process of its own; one worker is that process. Memory is the largest sum over the workers of their proportional set
size (PSS, from ``/proc/PID/smaps_rollup``) at a report of a run; it shares a page out among the processes that map it.
It is split into memory of the process itself (``anonymous``), memory files, which are data (``data``), and other files,
which are libraries. A start is the processor time of a worker until it reports its first evaluation; ``a run`` is what
the workers take then, for each run.
Run: python benchmarks/workers.py [ROUNDS] [WORKERS …]   (needs Fashion-MNIST: vflsim data get fashion_mnist)
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflsim import load
from vflsim.simulation.reporter import Progress
from vflsim.studies.runs.progress import Report, StudyRun, Watcher
from vflsim.studies.study import run_study
from vflsim.vocabulary.execution_options import RunOptions

SCENARIO = Path(__file__).parents[1] / "scenarios" / "fashion_mnist_stragglers.yaml"
SAID = ("protocols={wait: {kind: synchronous}}", "evaluate={every: 100 rounds}")
ROUNDS, WORKERS, RUNS_EACH = 400, (1, 2), 2
LOOKS = 5
PARTS = {"pss": "Pss:", "anonymous": "Pss_Anon:", "data": "Pss_Shmem:", "libraries": "Pss_File:"}


def main(rounds: int, counts: Sequence[int]) -> None:
    """Print the table."""
    print(f"{SCENARIO.stem}, {RUNS_EACH} runs of {rounds} rounds for each worker; MiB and seconds of the processor")
    print("workers  all PSS  a worker: PSS, anonymous, data, libraries   parent PSS   start   a run   of the parent")
    for workers in counts:
        found = _child(rounds, workers)
        most, each = found["most"], {part: size / workers for part, size in found["most"].items()}
        print(
            f"{workers:7}  {most['pss']:7.0f}  {each['pss']:13.0f} {each['anonymous']:9.0f} {each['data']:6.0f} "
            f"{each['libraries']:9.0f} {found['parent']:15.0f} {max(found['starts_s']):8.2f} {found['run_s']:7.2f} "
            f"{found['serving_s']:10.2f}   {found['rate']:.3f} runs a s of the clock",
            flush=True,
        )


def measure(source: Any, overrides: Sequence[str], workers: int) -> dict[str, Any]:
    """Run a scenario on ``workers`` processes; return memory in MiB, and seconds of the processor by name."""
    with tempfile.TemporaryDirectory() as folder:
        scenario, seen = load(source, overrides), _Observer(Path(folder))
        options = RunOptions(workers=workers, checkpoint_every=None)
        done = run_study(scenario, folder, options=options, watcher=seen)
    assert not done.failures, "a failed run measures nothing"
    runs, starts_s = len(done.results.runs), list(seen.starts_s.values())
    return {
        "most": seen.most,
        "parent": seen.parent,
        "starts_s": starts_s,
        "run_s": (sum(seen.latest_s.values()) - sum(starts_s)) / runs,
        "serving_s": seen.serving_s / runs,
        "rate": runs / (seen.last - seen.first),
    }


class _Observer(Watcher):
    """Looks at the workers when a run reports, ``LOOKS`` times, since looking takes milliseconds.

    ``starts_s`` and ``latest_s`` are the processor times of each worker at its first report and at the end of a run,
    ``first`` and ``last`` the seconds of the clock at the first report and the last end; ``most`` is the largest sum of
    the workers' memory by part, and ``parent`` this process's then, in MiB; ``serving_s`` is the processor time of this
    process, which includes looking, from ``first`` to ``last``. A worker's standard output is the log of
    its run, by which it is known.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.starts_s: dict[int, float] = {}
        self.latest_s: dict[int, float] = {}
        self.first = self.last = self.parent = self._served_s = self.serving_s = 0.0
        self.most = dict.fromkeys(PARTS, 0.0)
        self._looks = Counter[tuple[str, int]]()

    def progressed(self, run: StudyRun, progress: Progress) -> None:
        log, workers = str(self._folder / run.protocol / f".seed-{run.seed}.log"), _workers()
        for worker in workers:
            if worker not in self.starts_s and (worker == os.getpid() or os.readlink(f"/proc/{worker}/fd/1") == log):
                self.starts_s[worker] = _cpu_s(worker)
                self._served_s = self._served_s or _cpu_s(os.getpid())
                self.first = self.first or time.monotonic()
        self._looks[run.protocol, run.seed] += 1
        if self._looks[run.protocol, run.seed] > LOOKS:
            return
        found = [_sizes(worker) for worker in workers]
        total = {part: sum(each[part] for each in found) for part in PARTS}
        if total["pss"] > self.most["pss"]:
            self.most, self.parent = total, _sizes(os.getpid())["pss"]

    def ended(self, run: StudyRun, report: Report) -> None:
        self.latest_s = {worker: _cpu_s(worker) for worker in _workers()}
        self.last, self.serving_s = time.monotonic(), _cpu_s(os.getpid()) - self._served_s


def _workers() -> list[int]:
    """Return the ids of the worker processes; without any, this process works."""
    return [worker.pid for worker in multiprocessing.active_children() if worker.pid is not None] or [os.getpid()]


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _sizes(process: int) -> dict[str, float]:
    """Return the parts of a process's PSS in MiB; zeros for one that has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return dict.fromkeys(PARTS, 0.0)
    read = {words[0]: float(words[1]) / 1024 for words in map(str.split, lines) if words[0].startswith("Pss")}
    return {part: read.get(name, 0.0) for part, name in PARTS.items()}


def _child(*arguments: int) -> Any:
    done = subprocess.run([sys.executable, __file__, "-", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["-"]:
        rounds, workers = map(int, sys.argv[2:])
        overrides = [*SAID, f"stop={{rounds: {rounds}}}", f"seeds=0:{RUNS_EACH * workers}"]
        print(json.dumps(measure(SCENARIO, overrides, workers)))
    else:
        given = [int(word) for word in sys.argv[1:]]
        main(given[0] if given else ROUNDS, given[1:] or WORKERS)
