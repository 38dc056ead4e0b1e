"""The tutorial works as it stands: its files, commands and code, in order, in an empty folder."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from pages import ROOT

PAGES = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
BLOCK = re.compile(r"^```(yaml|python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_tutorial_runs_in_order(page: Path, empty_folder: Path, vflsim: Callable[..., Ended]) -> None:
    names: dict[str, object] = {}
    blocks = BLOCK.findall(page.read_text())
    assert {"yaml", "sh", "python"} <= {language for language, _ in blocks}
    for language, text in blocks:
        if file := FILE.match(text):
            Path(file[1]).write_text(text)
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
        elif language == "sh":
            for command in text.splitlines():
                ended = vflsim(*shlex.split(command)[1:])
                assert ended.status == 0, f"{command}: {ended.err}"
        elif text.startswith("$ "):
            command, _, printed = text.partition("\n")
            assert vflsim(*shlex.split(command)[2:]).err == printed
