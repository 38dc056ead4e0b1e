"""Kills studies (SIGKILL) at 100 drawn places, runs the same commands again, and compares every byte.

All protocols of scenarios/all_protocols.yaml run, shortened, as single studies, as studies that grow, as sweeps, with
two workers, and as shards. A process kills itself at a drawn count: before one of its changes of files, or before one
of its computations. Of two workers, one kills itself so, too, or the process that it works for does, at a drawn word
from it. The same command then continues, until it ends by itself. Results must be those of a study that nobody killed,
to the last byte, and sound; wall-clock times may differ.
Run: python benchmarks/kills.py [kills] [seed] [PROTOCOL …]
(What nobody kills alone takes nearly two minutes on two busy cores for all protocols.)
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from struck import CONTEXT, Blow, Places, done, ended, files_in, fresh, nested, planned, preload, trouble

SHORT: dict[str, Any] = {
    "stop": {"rounds": 6}, "evaluate": {"every": "2 rounds"}, "seeds": [0], "target": None, "record": "events",
    "timing": {
        "network": "fifo",
        "server": {"compute": "2 ms", "link": {"up": "100 Mbps", "down": "100 Mbps"}},
        "clients": [
            {"select": "all", "compute": "4 ms", "link": {"up": "20 Mbps", "down": "20 Mbps"}},
            {"select": "3..4", "upload_delay": {"kind": "exponential", "mean": "0.5 s"}},
        ],
    },
}  # fmt: skip
AS_OTHERS = {"stop": None, "evaluate": None}
FEWER = {
    "vimadmm": {"local_steps": 2}, "vimadmm-j": {"local_steps": 2}, "centralised": AS_OTHERS, "local": AS_OTHERS,
}  # fmt: skip
GROUPS = 3
"""All entries take part, a group at a time, each with the one that sweeps change."""
SWEPT = "t-sync"


@dataclass(frozen=True)
class Campaign:
    """A study: the commands that lead to it, one after the other (``OUT`` is its folder), and its share of kills.

    ``quiet`` is the command of the study that nobody kills; ``workers``: processes of the command that compute.
    """

    name: str
    share: float
    commands: tuple[tuple[str, ...], ...]
    quiet: tuple[str, ...]
    workers: int = 1


RUN = ("run", "SCENARIO", "--no-report", "--out", "OUT")
SEEDS = (*RUN, "--seeds", "0:2")
SWEEP = ("sweep", "SCENARIO", "--over", f"protocols.{SWEPT}.t=1,2", "--out", "OUT")
SHARDS = tuple(("work", "UNITS", "--out", "SHARDS", "--shard", f"{n}/2") for n in (1, 2))
COLLECT = ("collect", "UNITS", "SHARDS", "--out", "OUT")
CAMPAIGNS = (
    Campaign("two workers", 0.15, ((*RUN, "--workers", "2"),), RUN, workers=2),
    Campaign("shards", 0.1, (*SHARDS, COLLECT), RUN),
    Campaign("growing studies", 0.25, ((*RUN, "--set", "stop.rounds=3"), SEEDS), SEEDS),
    Campaign("sweeps", 0.15, (SWEEP,), SWEEP),
    Campaign("runs", 0.35, (RUN,), RUN),
)


def scenarios(chosen: Sequence[str] = ()) -> list[dict[str, Any]]:
    """all_protocols.yaml, shortened, with a group of its protocols each, or of those that are chosen."""
    yaml = YAML(typ="safe", pure=True)
    said = yaml.load(Path(__file__).parents[1] / "scenarios" / "all_protocols.yaml") | SHORT
    entries = {name: entry | FEWER.get(name, {}) for name, entry in said["protocols"].items()}
    names = chosen or [*entries]
    groups = [names[n::GROUPS] for n in range(GROUPS)]
    return [
        said | {"protocols": {name: entries[name] for name in {**dict.fromkeys(group), SWEPT: None}}}
        for group in groups
    ]


@dataclass
class Count:
    """What came of a campaign."""

    at: Counter[str] = field(default_factory=Counter)
    with_checkpoint: int = 0
    complete: int = 0
    wrong: list[str] = field(default_factory=list)


class Quiet:
    """A scenario that nothing befalls: its plan of units, and by command the files that it ends with."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self._ends: dict[tuple[str, ...], dict[str, bytes]] = {}
        self.tallies: dict[tuple[str, ...], dict[str, int]] = {}
        with fresh(scenario) as places:
            planned(places)
            self._units = Path(places.words["UNITS"]).read_text()

    @contextmanager
    def places(self) -> Iterator[Places]:
        """A new folder with the scenario and its plan."""
        with fresh(self.scenario) as places:
            Path(places.words["UNITS"]).write_text(self._units)
            yield places

    def files(self, command: tuple[str, ...]) -> dict[str, bytes]:
        """The files that a command ends with."""
        if command not in self._ends:
            self.count((command,))
        return self._ends[command]

    def count(self, commands: Sequence[tuple[str, ...]]) -> None:
        """Carry out commands in a folder, and note their changes of files, computations, and words of workers."""
        with self.places() as places:
            for command in commands:
                done(places, command)
                self.tallies[command] = json.loads((places.folder / "tally").read_text())
            self._ends[commands[-1]] = files_in(places.out)


def campaign(said: Campaign, quiet: Quiet, kills: int, count: Count, pick: random.Random) -> None:
    """Kill a study so many times more, and count what came of it."""
    wanted = quiet.files(said.quiet)
    if not quiet.tallies.keys() >= {*said.commands}:
        quiet.count(said.commands)
    end = count.at.total() + kills
    while count.at.total() < end and not count.wrong:
        with quiet.places() as places:
            for command in said.commands:
                totals = dict(quiet.tallies[command])
                if said.workers > 1:
                    alone = quiet.tallies[said.quiet]
                    totals = totals | {
                        f"worker {what}": alone[what] // said.workers for what in ("file", "computation")
                    }
                finish(places, command, totals, end, count, pick)
            count.complete += 1
            count.wrong += trouble(places.out, wanted)


def finish(
    places: Places, command: Sequence[str], total: dict[str, int], end: int, count: Count, pick: random.Random
) -> None:
    """Repeat a command that is killed at drawn places until it ends by itself."""
    while True:
        at = pick.choice([kind for kind, times in total.items() if times])
        blow = Blow(at, pick.randint(1, max(1, total[at] // 2)))
        status, words = ended(places, command, blow if count.at.total() < end else None)
        if status != -signal.SIGKILL and "was killed by SIGKILL" not in words:
            break
        count.at[at] += 1
        count.with_checkpoint += any(places.folder.rglob(".seed-*.checkpoint/*.json"))
    if status:
        count.wrong.append(f"{command[0]} ended with status {status}: {words.strip()[-300:]}")


def group(number: int, scenario: dict[str, Any], kills: int, seed: int) -> list[Count]:
    """Carry out every campaign with one group of the entries; ``kills`` are those of all groups."""
    nested()
    quiet, pick, counts, left = Quiet(scenario), random.Random(f"{seed} {number}"), [], kills
    for said in CAMPAIGNS:
        own = left if said is CAMPAIGNS[-1] else round(said.share * kills)
        left -= own
        counts.append(Count())
        campaign(said, quiet, own // GROUPS + (number < own % GROUPS), counts[-1], pick)
    return counts


def main(kills: int, seed: int, *chosen: str) -> None:
    """Print a line for each sort of study."""
    began = time.monotonic()
    preload()
    with ProcessPoolExecutor(GROUPS, CONTEXT) as pool:
        tasks = [pool.submit(group, number, said, kills, seed) for number, said in enumerate(scenarios(chosen))]
        found = [task.result() for task in tasks]
    wide = {"file": 5, "computation": 12, "word": 5, "worker file": 12, "worker computation": 19}
    heads = "".join(f" {at:>{each}}" for at, each in wide.items())
    print(f"{kills} kills (SIGKILL) of entries of all_protocols.yaml: {', '.join(chosen) or 'all kinds'}")
    print(f"{'study':<16} kills{heads} with checkpoint studies  identical and sound")
    for said, counts in zip(CAMPAIGNS, zip(*found, strict=True), strict=True):
        at = sum((count.at for count in counts), Counter[str]())
        line = [f"{said.name:<16} {at.total():5}", *(f"{at[each]:{columns}}" for each, columns in wide.items())]
        line += [f"{sum(count.with_checkpoint for count in counts):15}", f"{sum(count.complete for count in counts):7}"]
        print(*line, f" {'; '.join(each for count in counts for each in count.wrong) or 'yes'}")
    print(f"in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    given = [*sys.argv[1:], *("100", "0")[len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), *given[2:])
