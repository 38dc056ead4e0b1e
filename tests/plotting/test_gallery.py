"""The gallery shows every figure, by commands that can be run, with pictures that are small."""

import json
import re
import runpy
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vflsim
from vflsim.plotting import PLOTS, SWEEP_PLOTS, plot
from vflsim.results import Results, RunTables, write_run
from vflsim.scenario.overrides import values_of

ROOT = Path(__file__).parents[2]
LARGEST = 150_000

gallery = runpy.run_path(str(ROOT / "plots" / "gallery.py"))
NUMBERS = json.loads((gallery["PAGE"].parent / gallery["NUMBERS"]).read_text())
SECTIONS = gallery["sections"](gallery["PAGE"].read_text())
COMMANDS = [shlex.split(command) for commands, _ in SECTIONS for command in commands]


def test_every_figure_is_in_the_gallery_and_every_picture_is_made_by_a_command() -> None:
    kinds = [command[command.index("--kind") + 1] for command in COMMANDS if command[1] == "plot"]
    assert set(kinds) == {*PLOTS, *SWEEP_PLOTS}
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", gallery["PAGE"].read_text())
    assert shown == [picture for _, picture in SECTIONS]
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize("picture", [picture for _, picture in [*SECTIONS, *gallery["OTHERS"]]])
def test_pictures_are_small(picture: str) -> None:
    path = gallery["PAGE"].parent / picture
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size <= LARGEST


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c[1] in ("run", "sweep")], ids=lambda command: " ".join(command[1:3])
)
def test_the_scenarios_of_the_commands_can_be_swept_as_they_say(command: list[str]) -> None:
    overrides = [command[k + 1] for k, word in enumerate(command) if word == "--set"]
    loaded = vflsim.load(ROOT / command[2], overrides)
    assert loaded.protocols
    if "--over" in command:
        key, values = values_of(command[command.index("--over") + 1], "--over")
        assert len(values) >= 3
        assert vflsim.load(ROOT / command[2], {key: values[0]}).protocols


def test_results_are_drawn_from_the_folder_that_the_command_before_has_written() -> None:
    written = set()
    for program, verb, target, *options in COMMANDS:
        assert program == "vflsim"
        if verb == "plot":
            assert target.removeprefix("results/") in written
        if verb not in ("run", "sweep"):
            continue
        name = vflsim.load(ROOT / target).name
        name += f"-sweep-{options[options.index('--over') + 1].partition('=')[0]}" if verb == "sweep" else ""
        written.add(name + ("-timing" if "--timing-only" in options else ""))


def test_what_pictures_show_is_kept_of_pictures_that_there_are() -> None:
    assert set(NUMBERS) <= {picture for _, picture in [*SECTIONS, *gallery["OTHERS"]]}
    for each in NUMBERS.values():
        assert each["words"]
        assert each["numbers"]


@pytest.fixture
def draw(toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The gallery's command on a page with one picture, of the toy's results."""
    page = tmp_path / "docs" / "gallery.md"
    page.parent.mkdir()
    page.write_text("```sh\nvflsim plot results/toy --kind durations\n```\n\n![Durations](images/durations.png)\n")
    shutil.copytree(toy_folder, tmp_path / "results" / "toy")
    there = gallery["main"].__globals__
    monkeypatch.setitem(there, "PAGE", page)
    monkeypatch.setitem(there, "OTHERS", [])

    def called(*words: str) -> None:
        monkeypatch.setattr("sys.argv", ["gallery.py", "--work", str(tmp_path), "--of", "results/toy", *words])
        gallery["main"]()

    return called


@pytest.mark.slow
def test_the_command_writes_a_small_picture_and_what_it_shows(draw: Callable[..., None], tmp_path: Path) -> None:
    draw()
    kept = json.loads((tmp_path / "docs" / "images" / "numbers.json").read_text())["images/durations.png"]
    seconds = plot(Results.open(tmp_path / "results" / "toy"), "durations").numbers["durations"]
    own = seconds.loc[seconds["protocol"] == "wait", "seconds"]
    assert kept["numbers"]["durations"]["wait"]["seconds"] == pytest.approx(
        [own.min(), own.mean(), own.max()], rel=1e-4
    )
    assert kept["numbers"]["durations"]["wait"]["rows"] == len(own)
    assert {"round duration [s]", "wait (mean # s, n = #)"} <= set(kept["words"])
    with Image.open(tmp_path / "docs" / "images" / "durations.png") as picture:
        assert picture.mode == "P"
    draw("--check")


def test_a_picture_that_shows_something_else_is_found_and_not_written(
    draw: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw()
    written = (tmp_path / "docs" / "images" / "durations.png").read_bytes()
    run = Results.open(tmp_path / "results" / "toy").run("wait", 0)
    tables = run.tables()
    later = tables.rounds["end_s"].to_numpy() * 1.5
    rounds = tables.rounds.set_column(2, "end_s", [later]).set_column(1, "start_s", [np.append(0, later[:-1])])
    write_run(run.folder, RunTables(tables.metrics, rounds, tables.events), {}, run.info)
    with pytest.raises(SystemExit) as ended:
        draw("--check")
    assert "images/durations.png: numbers/durations/wait/seconds: [" in str(ended.value)
    assert "async" not in str(ended.value)
    assert (tmp_path / "docs" / "images" / "durations.png").read_bytes() == written


def test_differences_below_what_can_be_seen_do_not_count() -> None:
    before = {"words": ["a"], "numbers": {"means": {"wait": {"rows": 100, "mean": [0.0, 0.5, 1.0]}}}}
    assert list(gallery["differences"](before, before)) == []
    near = {"words": ["a"], "numbers": {"means": {"wait": {"rows": 101, "mean": [0.001, 0.505, 0.999]}}}}
    assert list(gallery["differences"](before, near)) == []
    far = {"words": ["b"], "numbers": {"means": {"wait": {"rows": 50, "mean": [0.0, 0.52, 1.0]}, "more": {"rows": 1}}}}
    assert [each.partition(":")[0] for each in gallery["differences"](before, far)] == [
        "words", "numbers/means/wait/rows", "numbers/means/wait/mean", "numbers/means/more"
    ]  # fmt: skip
