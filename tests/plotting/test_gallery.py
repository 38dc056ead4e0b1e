"""The gallery shows every figure, by commands that can be run, with pictures that are small."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

import vflsim
from vflsim.plotting import PLOTS, SWEEP_PLOTS
from vflsim.scenario.overrides import values_of

ROOT = Path(__file__).parents[2]
LARGEST = 150_000

gallery = runpy.run_path(str(ROOT / "plots" / "gallery.py"))
SECTIONS = gallery["sections"](gallery["PAGE"].read_text())
COMMANDS = [shlex.split(command) for commands, _ in SECTIONS for command in commands]


def test_every_figure_is_in_the_gallery_and_every_picture_is_made_by_a_command() -> None:
    kinds = [command[command.index("--kind") + 1] for command in COMMANDS if command[1] == "plot"]
    assert set(kinds) == {*PLOTS, *SWEEP_PLOTS}
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", gallery["PAGE"].read_text())
    assert shown == [picture for _, picture in SECTIONS]
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize("picture", [picture for _, picture in SECTIONS])
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
