"""``docs/timing.md``: each command with output prints what the page shows."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from pages import ROOT

PAGE = (ROOT / "docs" / "timing.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```text\n\$ ([^\n]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_output_of_a_command() -> None:
    assert SHOWN


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_a_command_prints_what_the_page_shows(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = "\n".join(line.rstrip() for line in vflsim(*shlex.split(command)[1:]).out.splitlines())
    parts = [part.strip("\n") for part in shown.split("…\n") if part.strip()]
    assert parts
    for part in parts:
        assert part in printed
