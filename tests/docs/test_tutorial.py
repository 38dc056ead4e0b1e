"""Pages to begin with work as they stand: their files, commands and code, in order, in an empty folder."""

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from pages import ROOT

PAGES = [
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *(ROOT / "docs" / f"{name}.md" for name in ("own-data", "adding-a-protocol")),
]
LIVE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8").partition("## Delays")[0]
CASES = {page.stem: page.read_text(encoding="utf-8") for page in PAGES} | {"live": LIVE}
"""The pages, and what the page on live runs has its reader do at first."""
BLOCK = re.compile(r"^```(yaml|python|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def beside_each_other(commands: list[str]) -> list[str]:
    """Run commands at the same time, at a free port, in processes of their own; return what failed and what it said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [shlex.split(command.removesuffix("&").replace("7000", port)) for command in commands]
    running = [
        subprocess.Popen([sys.executable, "-m", *each], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for each in words
    ]
    try:
        said = [process.communicate(timeout=240)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    return [text for process, text in zip(running, said, strict=True) if process.returncode != 0]


@pytest.mark.slow
@pytest.mark.parametrize("page", CASES)
def test_a_page_to_begin_with_runs_in_order(page: str, empty_folder: Path, vflsim: Callable[..., Ended]) -> None:
    names: dict[str, object] = {}
    blocks = BLOCK.findall(CASES[page])
    assert {"sh", "python"} <= {language for language, _ in blocks}
    for language, text in blocks:
        if file := FILE.match(text):
            Path(file[1]).write_text(text)
        elif language == "python":
            exec(compile(text, page, "exec"), names)
        elif language == "sh" and "&\n" in text:
            assert beside_each_other(text.splitlines()) == []
        elif language == "sh":
            for command in text.splitlines():
                ended = vflsim(*shlex.split(command)[1:])
                assert ended.status == 0, f"{command}: {ended.err}"
        elif text.startswith("$ "):
            command, _, printed = text.partition("\n")
            assert vflsim(*shlex.split(command)[2:]).err == printed
