"""Damages results at drawn places and verifies them: what ``vflsim verify`` finds, refuses, or overlooks.

A study of four protocol kinds with weights and views, two seeds each. One file is damaged at a time: bits, bytes,
blocks and ends of any file; values and keys of JSON pages. Then every digest is left as it is, or rewritten to fit, as
somebody would who wants to hide the change. Each ``verify`` has a process of its own. It must never end in a traceback
or by a signal, nor write control characters; without rewritten digests it must find every damage.
Run: python benchmarks/damage.py [damages of each sort] [seed]   (200 take about eight minutes on two busy cores)
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from kills import RUN, scenarios
from struck import CONTEXT, Places, done, ended, fresh, nested, preload

KINDS = ("wait", "async", "easter", "fedvs")
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 10**400, 1e308, float("nan"), "", "\x1b]0;title\x07", "../../outside", [], [[[]]], {},
    "x" * 100_000,
)  # fmt: skip


def damage_bytes(content: bytes, pick: random.Random) -> bytes:
    """Flip a bit, change some bytes, empty a block, cut the end off, or put bytes in."""
    at, some = pick.randrange(len(content)), pick.randint(1, 64)
    match pick.randrange(5):
        case 0:
            return content[:at] + bytes([content[at] ^ 1 << pick.randrange(8)]) + content[at + 1 :]
        case 1:
            return content[:at] + pick.randbytes(some) + content[at + some :]
        case 2:
            return content[:at] + bytes(len(content[at : at + some])) + content[at + some :]
        case 3:
            return content[:at]
        case _:
            return content[:at] + pick.randbytes(some) + content[at:]


def damage_page(content: bytes, pick: random.Random) -> bytes:
    """Replace or remove a value of a JSON page, at any depth, unless it is null, which may as well be missing."""
    page = json.loads(content)
    places = [(inside, key) for inside, key in _places(page) if inside[key] is not None]
    inside, key = pick.choice(places)
    others = [holder[name] for holder, name in places if holder[name] != inside[key]]
    if pick.random() < 0.2:
        del inside[key]
    else:
        inside[key] = pick.choice([*STRANGE, pick.choice(others)])
    return json.dumps(page, indent=2).encode()


def _places(page: Any) -> list[tuple[Any, Any]]:
    inner = page.items() if isinstance(page, dict) else enumerate(page) if isinstance(page, list) else ()
    return [place for key, value in inner for place in ((page, key), *_places(value))]


def reseal(out: Path, changed: Path) -> None:
    """Rewrite the digests of a file, and of the page that lists it, wherever there are any."""
    from vflsim.results.store.write import facts_of

    for page in sorted({changed.parent / "run.json", out / "manifest.json"}, key=lambda path: -len(path.parts)):
        try:
            said = json.loads(page.read_bytes())
            listed = said["files"]
            for name in listed:
                listed[name] = facts_of(page.parent / name).model_dump()
            page.write_text(json.dumps(said, indent=2) + "\n")
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            continue


def outcome(places: Places) -> str:
    """Verify the study, and say in a word what came of it."""
    status, words = ended(places, ("verify", "OUT"))
    said = words + (places.folder / "errors.out").read_text()
    if status < 0:
        return "died"
    if "Traceback" in said:
        return "traceback"
    if any(ord(each) < 32 and each not in "\n\t" for each in said):
        return "control characters"
    return {0: "sound", 2: "found"}.get(status, f"status {status}")


SORTS: dict[str, tuple[str, Callable[[bytes, random.Random], bytes]]] = {
    "tables": ("*/seed-*/*.parquet", damage_bytes),
    "weights": ("*/seed-*/*.safetensors", damage_bytes),
    "pages, bytes": ("**/*.json", damage_bytes),
    "pages, values": ("**/*.json", damage_page),
    "other files": ("*.*", damage_bytes),
}


def damages(sort: str, times: int, seed: int) -> tuple[str, dict[bool, Counter[str]], list[str]]:
    """Damage a study so many times in one way, each time anew, half of them with digests rewritten."""
    nested()
    pattern, damaged = SORTS[sort]
    pick = random.Random(f"{seed} {sort}")
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    notes: list[str] = []
    everything = {name: entry for each in scenarios() for name, entry in each["protocols"].items()}
    scenario = scenarios()[0] | {
        "protocols": {name: everything[name] for name in KINDS}, "seeds": [0, 1],
    }  # fmt: skip
    with fresh(scenario) as places:
        done(places, RUN)
        whole = places.folder / "whole"
        places.out.rename(whole)
        files = [each.relative_to(whole) for each in sorted(whole.glob(pattern)) if each.is_file()]
        paths = [each for each in files if not any(part.startswith(".") for part in each.parts)]
        for number in range(times):
            hidden = bool(number % 2)
            shutil.rmtree(places.out, ignore_errors=True)
            shutil.copytree(whole, places.out)
            path = places.out / pick.choice(paths)
            before = path.read_bytes()
            after = damaged(before, pick)
            if after == before:
                continue
            path.write_bytes(after)
            if hidden:
                reseal(places.out, path)
            came = outcome(places)
            counts[hidden][came] += 1
            if came != "found" and not (hidden and came == "sound"):
                notes.append(f"{sort}, {'hidden' if hidden else 'open'}, {path.relative_to(places.out)}: {came}")
    return sort, counts, notes


def main(times: int, seed: int) -> None:
    """Print a line for each sort of damage, with digests left and rewritten."""
    preload()
    with ProcessPoolExecutor(2, CONTEXT) as pool:
        found = [*pool.map(partial(damages, times=times, seed=seed), SORTS)]
    for sort, counts, notes in found:
        for hidden, counted in counts.items():
            words = ", ".join(f"{what} {count}" for what, count in sorted(counted.items()))
            print(f"{sort:<15} digests {'rewritten' if hidden else 'left':<10} {counted.total():5}   {words}")
        for note in notes:
            print(f"    {note}")


if __name__ == "__main__":
    main(*(int(each) for each in [*sys.argv[1:], *("200", "0")[len(sys.argv) - 1 :]]))
