"""Regenerate the pictures of docs/gallery.md and README.md with the commands that they name, and what they show.

docs/images/numbers.json has a digest of the numbers and words behind every picture. --check draws the pictures again,
writes none, and fails if one shows something else.
"""

import argparse
import contextlib
import io
import json
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from matplotlib.text import Text
from PIL import Image

import vflsim.cli
from vflsim.errors import VflsimError
from vflsim.plotting.style import Picture

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
NUMBERS = "images/numbers.json"
SECTION = re.compile(r"```sh\n(?P<commands>.*?)```\s*!\[[^\]]*\]\((?P<picture>[^)]+)\)", re.DOTALL)
OTHERS = [
    (["vflsim run scenarios/quickstart.yaml", "vflsim plot results/quickstart --kind time"], "images/quickstart.png"),
    (
        [
            "vflsim run scenarios/timing/two_clients.yaml --timing-only",
            "python plots/timing_model.py results/two_clients-timing",
        ],
        "images/timing_model.png",
    ),
]
"""Pictures of README.md and of docs/timing.md, likewise (commands, picture)."""
NUMBER = re.compile(r"\d[\d.,]*(e[+-]?\d+)?")
LIST = re.compile(r"\[[^\[\]{}]*\]")
COLORS = 64
"""Size of the palette: figures have few colours, and a palette cuts files to a third."""
TOLERANCE = 0.01
"""Difference, as a share of a column's range, that nobody would see in a picture."""

Shown = dict[str, Any]


def sections(page: str) -> list[tuple[list[str], str]]:
    """List (commands, picture) of every section of the page; a backslash continues a line."""
    return [
        (found["commands"].replace("\\\n", " ").strip().splitlines(), found["picture"])
        for found in SECTION.finditer(page)
    ]


def run(command: str) -> Picture | None:
    """Run a command in this process and return the last picture that it has drawn."""
    program, *arguments = shlex.split(command)
    drawn: list[Picture] = []
    render = Picture.rendered

    def rendered(picture: Picture, suffix: str, **how: bool) -> bytes:
        drawn.append(picture)
        return render(picture, suffix, **how)

    with patch.object(Picture, "rendered", rendered), contextlib.redirect_stdout(io.StringIO()):
        if program == "vflsim":
            vflsim.cli.app(arguments, standalone_mode=False)
        elif program == "python" and arguments[0].startswith("plots/"):
            with patch.object(sys, "argv", arguments):
                runpy.run_path(str(ROOT / arguments[0]), run_name="__main__")
        else:
            sys.exit(f"{command!r} is neither a vflsim command nor a script in plots/")
    return drawn[-1] if drawn else None


def shown(picture: Picture) -> Shown:
    """Digest what a picture shows: its words without numbers, and the least, mean and greatest of every column.

    Columns are those of a frame's groups. Groups are those of the first column, if it has names.
    """
    words = [axes.get_title(where) for axes in picture.axes for where in ("left", "center")]
    words += [text for axes in picture.axes for text in (axes.get_xlabel(), axes.get_ylabel())]
    words += [text.get_text() for each in picture.legends for text in each.findobj(Text)]
    words = [NUMBER.sub("#", text) for text in [picture.get_suptitle(), *words] if text.strip()]
    return {
        "words": [*dict.fromkeys(words)],
        "numbers": {name: dict(_groups(frame)) for name, frame in picture.numbers.items()},
    }


def _groups(frame: pd.DataFrame) -> Iterator[tuple[str, Shown]]:
    named = len(frame.columns) and not pd.api.types.is_numeric_dtype(frame.iloc[:, 0])
    key = frame.iloc[:, 0].astype(str) if named else pd.Series("all", frame.index)
    for name, own in frame.groupby(key, sort=False):
        columns = own.select_dtypes("number").astype(float)
        ends = {
            column: [float(f"{value:.5g}") for value in (values.min(), values.mean(), values.max())]
            for column, values in columns.items()
            if values.notna().any()
        }
        yield str(name), {"rows": len(own), **ends}


def differences(before: Shown, now: Shown, where: str = "") -> Iterator[str]:
    """Yield what differs: words, names, numbers of rows, and numbers by more than the tolerance."""
    for key in dict.fromkeys((*before, *now)):
        place, one, other = f"{where}/{key}".lstrip("/"), before.get(key), now.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from differences(one, other, place)
        elif key == "rows" and one is not None and other is not None:
            if abs(one - other) > 0.05 * max(one, other):
                yield f"{place}: {one} rows, now {other}"
        elif isinstance(one, list) and isinstance(other, list) and not isinstance((one or [""])[0], str):
            if not np.allclose(one, other, rtol=0, atol=TOLERANCE * max(one[2] - one[0], abs(one[1]))):
                yield f"{place}: {one}, now {other}"
        elif one != other:
            yield f"{place}: {one}, now {other}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder that keeps the results (default: a temporary one)")
    parser.add_argument("--only", help="only pictures whose name contains this")
    parser.add_argument("--of", help="only pictures of these results, which are in --work: results/quickstart")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a picture shows something else")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = (given.work or Path(scratch)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "scenarios").exists():
            (work / "scenarios").symlink_to(ROOT / "scenarios")
        with contextlib.chdir(work):
            drifted = [*_drawn(given)]
    if drifted:
        sys.exit("\n".join([*drifted, f"look at the pictures, then run {Path(__file__).name} without --check"]))


def _drawn(given: argparse.Namespace) -> Iterator[str]:
    """Draw the pictures; yield what they show otherwise than before."""
    store = PAGE.parent / NUMBERS
    known = json.loads(store.read_text()) if store.exists() else {}
    pictures = [*sections(PAGE.read_text()), *OTHERS]
    makers = {_source(commands): commands[:-1] for commands, _ in pictures if len(commands) > 1}
    for commands, name in pictures:
        source = _source(commands)
        if (given.only and given.only not in name) or (given.of and given.of != source):
            continue
        for command in [] if given.of else makers.pop(source, []):
            print(f"$ {command}", flush=True)
            run(command)
        print(f"$ {commands[-1]}", flush=True)
        picture = run(commands[-1])
        if picture is None:
            sys.exit(f"{commands[-1]!r} has drawn nothing")
        now = shown(picture)
        if given.check:
            yield from (f"{name}: {each}" for each in differences(known.get(name, {}), now))
            continue
        path = PAGE.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.open(io.BytesIO(picture.png())).convert("RGB")
        image.quantize(COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
        known[name] = now
        text = json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False)
        store.write_text(LIST.sub(lambda found: " ".join(found[0].split()), text) + "\n")
        print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


def _source(commands: list[str]) -> str:
    """Return the folder of results that the last command draws from; none for those of delays."""
    return next((word for word in shlex.split(commands[-1]) if word.startswith("results/")), "")


if __name__ == "__main__":
    try:
        main()
    except VflsimError as error:
        sys.exit(f"error: {error}")
