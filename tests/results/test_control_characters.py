"""Control characters in results that somebody else has written reach neither the terminal nor pages and figures."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended
from rich.text import Text

from vflsim.errors import ResultsError, printable
from vflsim.results.store.pages import read_info, read_scenario
from vflsim.studies.texts import InTerminal
from vflsim.tables import DataTable
from vflsim.tables.formats import markdown
from vflsim.tables.terminal import SafeConsole, say

TITLE = "\x1b]0;gotcha\x07"
STEERING = {
    "title": TITLE,
    "colour": "\x1b[31m",
    "erase": "\x1b[2J",
    "C1": "\x9b31m",
    "carriage return": "\rok",
    "backspace": "\x08\x08",
    "delete": "\x7f",
    "null": "\x00",
    "next line": "\x85",
    "line separator": "\u2028",
    "turned": "\u202egpj.exe",
    "isolated": "\u2066",
    "surrogate": "\udc9b",
}
HARMLESS = ("plain", "é — ± → ⅓ 漢字 👩‍👧", "two\nlines\tand a tab", "")


def steers(text: str) -> bool:
    return any(each in text for each in "\x1b\x07\x08\x9b\r\x7f\x00\x85\u2028\u202e\u2066\udc9b")


@pytest.mark.parametrize("text", STEERING.values(), ids=STEERING)
def test_control_characters_are_written_out(text: str) -> None:
    written = printable(f"a{text}b")
    assert not steers(written)
    assert written.startswith("a\\")
    assert printable(written) == written


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_stays(text: str) -> None:
    assert printable(text) == text
    assert printable("a\nb", "") == "a\\nb"


def printed(what: object, terminal: bool = False) -> str:
    file = io.StringIO()
    SafeConsole(file=file, width=60, force_terminal=terminal, legacy_windows=False).print(what)
    return file.getvalue()


@pytest.mark.parametrize("text", STEERING.values(), ids=STEERING)
def test_nothing_printed_steers_the_terminal(text: str) -> None:
    console = SafeConsole(file=io.StringIO(), width=60)
    say(console, f"warning: {text}")
    table = DataTable(("name", f"value{text}"), [(text, "1")], title=text, notes=[text])
    shown = [console.file.getvalue(), printed(Text(text)), printed(text), printed(table), repr(table)]  # type: ignore[attr-defined]
    shown += [markdown([table], text, {text: text}), str(ResultsError(text, text, text, text))]
    for each in shown:
        assert not steers(each)


def test_columns_stay_in_line_and_cells_on_one_line() -> None:
    lines = repr(DataTable(("a", "b"), [(TITLE, "1"), ("c\nd", "2")])).splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["b", lines[1].rpartition(" ")[2], "1", "2"]
    assert len({len(line) for line in lines}) == 1


def test_colours_and_live_lines_of_ones_own_stay() -> None:
    assert "\x1b[31m" in printed(Text("red", "red"), terminal=True)
    file = io.StringIO()
    live = InTerminal(SafeConsole(file=file, width=60, force_terminal=True, legacy_windows=False))
    live.start()
    live.update([Text("one"), Text(TITLE)])
    live._live.refresh()
    live.stop()
    assert "\x1b[" in file.getvalue()
    assert "\x1b]" not in file.getvalue()
    assert "\\x1b]0;gotcha" in file.getvalue()  # Rich leaves the bell out


@pytest.fixture
def received(toy_folder: Path, tmp_path: Path) -> Path:
    """Results whose first run has failed, with an error that steers the terminal."""
    folder = Path(shutil.copytree(toy_folder, tmp_path / "received"))
    change(folder, status="failed", error=f"first {TITLE}\nsecond \x9b2J", stop_reason=None)
    return folder


def change(folder: Path, **said: Any) -> None:
    page = folder / "wait" / "seed-0" / "run.json"
    page.write_text(json.dumps({**json.loads(page.read_text()), **said}))


@pytest.mark.parametrize("command", ["verify", "compare"])
def test_commands_do_not_pass_on_what_a_run_says(command: str, received: Path, vflsim: Callable[..., Ended]) -> None:
    ended = vflsim(command, received)
    assert not steers(ended.out + ended.err)
    if command == "verify":
        assert "\\x1b]0;gotcha\\x07" in ended.out


@pytest.mark.parametrize("key", ["protocol", "scenario"])
def test_names_with_control_characters_are_refused(key: str, received: Path) -> None:
    change(received, **{key: TITLE})
    with pytest.raises(ResultsError, match="has control characters"):
        read_info(received / "wait" / "seed-0")


@pytest.mark.parametrize("text", [r'protocols: {"\e]0;x": {}}', r'{name: "\x9b", protocols: {}}'])
def test_a_stored_scenario_with_such_names_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(text)
    with pytest.raises(ResultsError, match="has control characters"):
        read_scenario(tmp_path / "scenario.yaml")


def test_a_folder_with_such_a_name_is_printed_safely(
    toy_folder: Path, tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    folder = Path(shutil.copytree(toy_folder, tmp_path / TITLE))
    for command in (("verify", folder), ("compare", folder), ("trace", folder, "--protocol", "wait", "--seed", 0)):
        ended = vflsim(*command)
        assert not steers(ended.out + ended.err)
    assert not steers(vflsim("verify", tmp_path / f"no{TITLE}").err)
