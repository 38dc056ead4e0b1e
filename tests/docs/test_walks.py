"""The walks through the code that the page on architecture shows are those that a run takes."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pages import ROOT

import vflsim

PACKAGE = str(ROOT / "vflsim") + "/"
SECTION = (ROOT / "docs" / "architecture.md").read_text().partition("## Three walks")[2].partition("\n## ")[0]
WALKS = [
    [tuple(line.split()[:2]) for line in walk.strip().splitlines()]
    for walk in re.findall(r"```text\n(.*?)```", SECTION, re.DOTALL)
]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Functions in the order in which a run of the quickstart's synchronous rounds calls them, (file, name)."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            calls.append((file.removeprefix(PACKAGE), frame.f_code.co_qualname))

    out = tmp_path_factory.mktemp("walk") / "results"
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        scenario = vflsim.load("quickstart", {"seeds": [0], "stop": {"rounds": 2}})
        vflsim.run(scenario, out, path="event", protocols=["wait"], progress=False)
    finally:
        sys.setprofile(before)
    return calls


def test_there_are_three_walks() -> None:
    assert len(WALKS) == 3


@pytest.mark.parametrize("walk", WALKS, ids=["scenario", "embedding", "metric"])
def test_a_run_takes_the_walk(walk: list[tuple[str, str]], called: list[tuple[str, str]]) -> None:
    rest = iter(called)
    for step in walk:
        assert (ROOT / "vflsim" / Path(step[0])).is_file()
        assert step in rest, f"{step} is not called after the steps before it"
