"""Breaks what studies stand on: full disks, removed folders, a second process, stopped processes, damaged shards.

After each fault the same command runs again, on mended ground: results must be those of a quiet study to the last byte,
and sound. Whatever is refused must be refused with a message (exit status 2), never with a traceback. Small disks need
root, for ``mount -t tmpfs``. Kills are in kills.py, a killed worker of Ray in tests/studies/engines/test_ray.py.
Run: python benchmarks/faults.py [faults of each sort] [seed] [SORT …]
(8 of all sorts take about five minutes on two busy cores)
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kills import COLLECT, RUN, SHARDS, scenarios
from struck import Blow, Places, done, ended, files_in, fresh, planned, preload, started, trouble

KINDS = ("wait", "async", "easter", "local")
ENOUGH = "1g"


class Quiet:
    """The study that nothing befalls: its files, computations, room on the disk, shards and plan."""

    def __init__(self) -> None:
        (said, *_) = everything = scenarios()
        entries = {name: entry for each in everything for name, entry in each["protocols"].items()}
        self.scenario = said | {"protocols": {name: entries[name] for name in KINDS}, "seeds": [0, 1]}
        with fresh(self.scenario) as places:
            planned(places)
            self.units = Path(places.words["UNITS"]).read_text()
            for shard in SHARDS:
                done(places, shard)
            self.shards = {
                str(path.relative_to(places.folder)): path.read_bytes()
                for path in (places.folder / "shards").rglob("*")
                if path.is_file()
            }
            done(places, RUN)
            self.files = files_in(places.out)
            self.computations = json.loads((places.folder / "tally").read_text())["computation"]
            self.room = sum(path.stat().st_size for path in places.out.rglob("*") if path.is_file())

    @contextmanager
    def places(self, shards: bool = False) -> Iterator[Places]:
        """A new folder, with the computed shards if wanted."""
        with fresh(self.scenario) as places:
            Path(places.words["UNITS"]).write_text(self.units)
            for name, content in self.shards.items() if shards else ():
                path = places.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            yield places

    def again(self, places: Places, command: tuple[str, ...] = RUN) -> str:
        """Run a command on mended ground; say what is wrong with its results."""
        status, words = ended(places, command)
        return words.strip()[-200:] if status else "; ".join(trouble(places.out, self.files))


def full_disk(quiet: Quiet, pick: random.Random) -> tuple[str, str]:
    """A study on a disk that is too small for it, which then grows."""
    with quiet.places() as places:
        disk = places.folder / "disk"
        disk.mkdir()
        size = pick.randint(4096, quiet.room)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
        try:
            places.words["OUT"] = str(disk / "out")
            said = refusal(*ended(places, RUN), "cannot be written")
            if said == "went on":  # without room for checkpoints: it must say so
                told = "a checkpoint could not be written" in (places.folder / "errors.out").read_text()
                said = "only lacked room for checkpoints, and said so" if told else "went on and said nothing"
            subprocess.run(["mount", "-o", f"remount,size={ENOUGH}", disk], check=True)
            return said, quiet.again(places)
        finally:
            subprocess.run(["umount", disk], check=True)


def folder_gone(quiet: Quiet, pick: random.Random) -> tuple[str, str]:
    """A results folder that is removed while a run is under way: later runs are there, the others come again."""
    with quiet.places() as places:
        blow = Blow("computation", pick.randint(1, quiet.computations), "remove folder", places.words["OUT"])
        status, words = ended(places, RUN, blow)
        said = "went on" if status == 0 else refusal(status, words, "")
        return said, quiet.again(places)


def two_at_once(quiet: Quiet, pick: random.Random) -> tuple[str, str]:
    """A second process on the folder of a stopped one (SIGSTOP), which then goes on (SIGCONT)."""
    with quiet.places() as places, quiet.places() as other:
        first = started(places, RUN, Blow("computation", pick.randint(1, quiet.computations), "stop"))
        while "T" not in Path(f"/proc/{first.pid}/stat").read_text().rpartition(")")[2].split()[0]:
            time.sleep(0.1)
        other.words["OUT"] = places.words["OUT"]
        said = refusal(*ended(other, RUN), "is in use by another process")
        os.kill(first.pid or 0, signal.SIGCONT)
        first.join()
        wrong = trouble(places.out, quiet.files)
        return said, f"status {first.exitcode}" if first.exitcode else "; ".join(wrong)


def changed_shard(quiet: Quiet, pick: random.Random) -> tuple[str, str]:
    """A bit of a file of a shard is another one; the shard is then computed again."""
    with quiet.places(shards=True) as places:
        name = pick.choice([name for name in quiet.shards if "/seed-" in name and "/." not in name])
        flip(places.folder / name, pick)
        said = refusal(*ended(places, COLLECT), Path(name).parts[-3])
        for shard in SHARDS:
            done(places, shard)
        return said, quiet.again(places, COLLECT)


def changed_plan(quiet: Quiet, pick: random.Random) -> tuple[str, str]:
    """A bit of the file of units is another one; the file is then mended."""
    with quiet.places(shards=True) as places:
        plan = Path(places.words["UNITS"])
        flip(plan, pick)
        said = refusal(*ended(places, COLLECT), "")
        plan.write_text(quiet.units)
        return said, quiet.again(places, COLLECT)


def missing_shard(quiet: Quiet, pick: random.Random) -> tuple[str, str]:
    """A shard is not there, or one of its runs; it is then computed."""
    with quiet.places(shards=True) as places:
        runs = sorted((places.folder / "shards").glob("shard-*/*/seed-*"))
        gone = pick.choice([pick.choice(runs), runs[0].parents[1], runs[-1].parents[1]])
        shutil.rmtree(gone)
        said = refusal(*ended(places, COLLECT), "units are missing")
        for shard in SHARDS:
            done(places, shard)
        return said, quiet.again(places, COLLECT)


def doubled_shard(quiet: Quiet, pick: random.Random) -> tuple[str, str]:
    """A shard is there twice, the second time with a file that has changed."""
    with quiet.places(shards=True) as places:
        shards = places.folder / "shards"
        twice = pick.choice(sorted(shards.iterdir()))
        shutil.copytree(twice, shards / f"{twice.name}-again")
        flip(pick.choice(sorted((shards / f"{twice.name}-again").rglob("*.parquet"))), pick)
        return "taken once", quiet.again(places, COLLECT)


def flip(path: Path, pick: random.Random) -> None:
    """Change a bit of a file."""
    content = bytearray(path.read_bytes())
    content[pick.randrange(len(content))] ^= 1 << pick.randrange(8)
    path.write_bytes(content)


def refusal(status: int, words: str, about: str) -> str:
    """Say how a command has refused: as it should with a message ``about`` its reason, or otherwise."""
    if status == 2 and about in words and "Traceback" not in words:
        return "refused"
    return "went on" if status == 0 else f"status {status}: {words.strip()[-200:]}"


SORTS: dict[str, Callable[[Quiet, random.Random], tuple[str, str]]] = {
    "disk full": full_disk,
    "folder removed": folder_gone,
    "stopped, second process": two_at_once,
    "shard changed": changed_shard,
    "plan changed": changed_plan,
    "shard missing": missing_shard,
    "shard doubled": doubled_shard,
}


def main(times: int, seed: int, *chosen: str) -> None:
    """Print a line for each sort of fault."""
    preload()
    pick, quiet = random.Random(seed), Quiet()
    print(f"{'fault':<25} times   what happened at first; afterwards identical and sound", flush=True)
    for name in chosen or SORTS:
        fault = SORTS[name]
        if fault is full_disk and os.geteuid() != 0:
            print(f"{name:<25}     0   needs root", flush=True)
            continue
        found = [fault(quiet, pick) for _ in range(times)]
        first = ", ".join(f"{said} {count}" for said, count in Counter(said for said, _ in found).items())
        wrong = [afterwards for _, afterwards in found if afterwards]
        print(f"{name:<25} {times:5}   {first}; {'; '.join(wrong) or f'{times} of {times}'}", flush=True)


if __name__ == "__main__":
    given = [*sys.argv[1:], *("8", "0")[len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), *given[2:])
