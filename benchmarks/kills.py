"""Kills studies (SIGKILL) at 100 drawn places, runs the same commands again, and compares every byte.

All protocols of scenarios/all_protocols.yaml run, shortened, as single studies, as studies that grow, as sweeps, with
two workers, and as shards. A process kills itself at a drawn count: before one of its changes of files, or before one
of its computations; of two workers also one, at a drawn word from it. The same command then continues, until it ends by
itself. Results must be those of a study that nobody killed, to the last byte, and sound; wall-clock times may differ.
Run: python benchmarks/kills.py [kills] [seed]   (100 take about 15 minutes on two busy cores)
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from struck import Blow, Places, done, ended, files_in, fresh, planned, preload, trouble

SHORT = {
    "stop": {"rounds": 12}, "evaluate": {"every": "4 rounds"}, "seeds": [0], "target": None, "record": "events",
}  # fmt: skip
FEWER = {"vimadmm": {"local_steps": 2}, "vimadmm-j": {"local_steps": 2}, "local": {"stop": None}}
GROUPS = 3
"""All entries take part, a group at a time, each with the one that sweeps change."""
SWEPT = "t-sync"


@dataclass(frozen=True)
class Campaign:
    """A study: the commands that lead to it, one after the other (``OUT`` is its folder), and its share of kills.

    ``quiet`` are the commands of the study that nobody kills, if they are others.
    """

    name: str
    share: float
    commands: tuple[tuple[str, ...], ...]
    quiet: tuple[tuple[str, ...], ...] = ()


RUN = ("run", "SCENARIO", "--no-report", "--out", "OUT")
TWO = (*RUN, "--seeds", "0:2")
SHARDS = tuple(("work", "UNITS", "--out", "SHARDS", "--shard", f"{n}/2") for n in (1, 2))
COLLECT = ("collect", "UNITS", "SHARDS", "--out", "OUT")
CAMPAIGNS = (
    Campaign("growing studies", 0.25, ((*RUN, "--set", "stop.rounds=6"), TWO), (TWO,)),
    Campaign("sweeps", 0.15, (("sweep", "SCENARIO", "--over", f"protocols.{SWEPT}.t=1,2", "--out", "OUT"),)),
    Campaign("two workers", 0.15, ((*RUN, "--workers", "2", "--checkpoint-every", "0.1 s"),), (RUN,)),
    Campaign("shards", 0.1, (*SHARDS, COLLECT), (RUN,)),
    Campaign("runs", 0.35, (RUN,)),
)


def scenarios() -> list[dict[str, Any]]:
    """all_protocols.yaml, shortened, with a group of its protocols each."""
    yaml = YAML(typ="safe", pure=True)
    said = yaml.load(Path(__file__).parents[1] / "scenarios" / "all_protocols.yaml") | SHORT
    entries = {name: entry | FEWER.get(name, {}) for name, entry in said["protocols"].items()}
    groups = [[*entries][n::GROUPS] for n in range(GROUPS)]
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


def campaign(said: Campaign, scenario: dict[str, Any], kills: int, count: Count, pick: random.Random) -> None:
    """Kill a study so many times more, and count what came of it."""
    totals: list[dict[str, int]] = []
    with fresh(scenario) as places:
        planned(places)
        for command in said.commands:
            done(places, command)
            totals.append(json.loads((places.folder / "tally").read_text()))
        wanted = files_in(places.out)
    if said.quiet:
        with fresh(scenario) as places:
            for command in said.quiet:
                done(places, command)
            wanted = files_in(places.out)
    end = count.at.total() + kills
    while count.at.total() < end and not count.wrong:
        with fresh(scenario) as places:
            planned(places)
            for command, total in zip(said.commands, totals, strict=True):
                finish(places, command, total, end, count, pick)
            count.complete += 1
            count.wrong += trouble(places.out, wanted)


def finish(
    places: Places, command: Sequence[str], total: dict[str, int], end: int, count: Count, pick: random.Random
) -> None:
    """Repeat a command that is killed at drawn places until it ends by itself."""
    while True:
        at = pick.choice([kind for kind, times in total.items() if times])
        what = pick.choice(["kill", "kill worker"]) if at == "word" else "kill"
        blow = Blow(at, pick.randint(1, max(1, total[at] // 2)), what)
        status, words = ended(places, command, blow if count.at.total() < end else None)
        if status != -signal.SIGKILL and "was killed by SIGKILL" not in words:
            break
        count.at[at] += 1
        count.with_checkpoint += any(places.folder.rglob(".seed-*.checkpoint/*.json"))
    if status:
        count.wrong.append(f"{command[0]} ended with status {status}: {words.strip()[-300:]}")


def main(kills: int, seed: int) -> None:
    """Print a line for each sort of study."""
    preload()
    pick, left = random.Random(seed), kills
    print(f"{kills} kills (SIGKILL) of the entries of all_protocols.yaml, of all kinds")
    print(
        "study            kills  at a file  computation  word  with checkpoint  studies   identical and sound",
        flush=True,
    )
    for said in CAMPAIGNS:
        own = left if said is CAMPAIGNS[-1] else round(said.share * kills)
        left -= own
        began, count = time.monotonic(), Count()
        for n, scenario in enumerate(scenarios()):
            campaign(said, scenario, own // GROUPS + (n < own % GROUPS), count, pick)
        found = [f"{count.at[at]:{wide}}" for at, wide in (("file", 10), ("computation", 12), ("word", 5))]
        found += [f"{count.with_checkpoint:16}", f"{count.complete:8}", f"  {'; '.join(count.wrong) or 'yes'}"]
        print(f"{said.name:<16} {count.at.total():5}", *found, f"({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main(*(int(each) for each in [*sys.argv[1:], *("100", "0")[len(sys.argv) - 1 :]]))
