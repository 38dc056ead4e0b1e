"""``docs/answers.md``: each command prints what the page shows."""

import re
import shlex
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest
from command_line import Ended
from pages import ROOT, in_words, nearly

PAGE = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8")
QUESTION = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")
TABLE = re.compile(r"^`([\w-]+\.csv)`:\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUICK = re.compile(r"analyze \S+ --protocol (?:wait|async)|check \S+ --(?:quick|set)|delays show|calibrate|list")
"""Commands that take less than a second, and need no results of earlier ones."""
MEASURED = ("vflsim check quickstart", "vflsim live timing/two_clients")
"""Commands that print what this machine takes: of their numbers any may differ, and so may units of time."""
UNIT_OF_TIME = re.compile(r"# (?:µs|ms|s|min|h)\b")
TRAINS = re.compile(r"which-t|deadline\.yaml|two-seconds|energy")
"""What is trained: see ``pages.NEARLY``."""


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a question, with the lines that the page shows below each."""
    lines = [line for block in BLOCK.findall(text) if block.startswith("$ ") for line in block.splitlines()]
    starts = [place for place, line in enumerate(lines) if line.startswith("$ ")]
    return [
        (lines[start][2:], lines[start + 1 : end]) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    ]


QUESTIONS = {heading: commands_of(text) for heading, text in QUESTION.findall(PAGE)}
QUICK_ONES = [
    heading
    for heading, commands in QUESTIONS.items()
    if all(QUICK.match(command.removeprefix("vflsim ")) for command, _ in commands)
]
SECTIONS = {
    section.partition("\n")[0]: [heading for heading, _ in QUESTION.findall(section) if heading not in QUICK_ONES]
    for section in PAGE.split("\n## ")[1:]
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unrendered: None) -> None:
    """A folder with the files of the page."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "scenarios" / "timing" / "uploads.csv", tmp_path)
    for block in BLOCK.findall(PAGE):
        if file := FILE.match(block):
            Path(file[1]).write_text(block, encoding="utf-8")
    for name, table in TABLE.findall(PAGE):
        Path(name).write_text(table, encoding="utf-8")


def alike(command: str, shown: str, printed: str) -> bool:
    """Whether a line is the one that the page shows: exactly, or in words and nearly in numbers."""
    if command in MEASURED:
        return UNIT_OF_TIME.sub("# s", in_words(shown)) == UNIT_OF_TIME.sub("# s", in_words(printed))
    return nearly(shown, printed) if TRAINS.search(command) else shown == printed.rstrip()


def missing(command: str, shown: list[str], printed: list[str]) -> str | None:
    """The first line of the page that the output does not have in its place, if any."""
    place, elsewhere = 0, False
    for left_out, lines in groupby(shown, lambda line: line == "…"):
        if left_out:
            elsewhere = True
            continue
        wanted = list(lines)
        found = [
            start
            for start in (range(place, len(printed)) if elsewhere else [place])
            if len(printed) - start >= len(wanted)
            and all(alike(command, *pair) for pair in zip(wanted, printed[start:], strict=False))
        ]
        if not found:
            return "\n".join(wanted)
        place, elsewhere = found[0] + len(wanted), False
    return None if elsewhere or place == len(printed) else f"and then the end, not {printed[place]!r}"


def check(heading: str, vflsim: Callable[..., Ended]) -> None:
    for command, shown in QUESTIONS[heading]:
        ended = vflsim(*shlex.split(command)[1:])
        printed = (ended.out + ended.err).splitlines()
        lacks = missing(command, shown, printed)
        assert lacks is None, f"{command}\nprints\n" + "\n".join(printed) + f"\nand the page shows\n{lacks}"


def test_there_are_twenty_five_questions_or_more_and_each_has_a_command() -> None:
    assert len(QUESTIONS) >= 25
    assert all(QUESTIONS.values())
    assert len(QUICK_ONES) >= 6


@pytest.mark.sampled(6)
@pytest.mark.parametrize("heading", QUICK_ONES)
def test_a_quick_answer_is_what_its_command_prints(heading: str, folder: None, vflsim: Callable[..., Ended]) -> None:
    check(heading, vflsim)


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_the_other_answers_of_a_section_are_what_their_commands_print(
    section: str, folder: None, vflsim: Callable[..., Ended]
) -> None:
    for heading in SECTIONS[section]:
        check(heading, vflsim)


def test_another_output_is_noticed() -> None:
    shown = ["…", "a  1", "b  2", "…"]
    assert missing("vflsim analyze x", shown, ["head", "a  1", "b  2", "tail"]) is None
    assert missing("vflsim analyze x", shown, ["head", "a  1", "b  3", "tail"]) == "a  1\nb  2"
    assert missing("vflsim analyze x", ["a  1"], ["a  1", "tail"]) == "and then the end, not 'tail'"
    assert missing("vflsim run deadline.yaml", ["a  1.0 s"], ["a  1.1 s"]) is None
    assert missing("vflsim run deadline.yaml", ["a  1.0 s"], ["a  2.1 s"]) == "a  1.0 s"
    assert missing("vflsim run deadline.yaml", ["a  1.0 s"], ["a  1.0 ms"]) == "a  1.0 s"
