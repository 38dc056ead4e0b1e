"""Text for terminals: nothing is cut in the middle of a word, whatever the width."""

import io
from html import escape
from pathlib import Path

import pytest
from rich.console import Console

from vflsim.results import Results, comparison_table
from vflsim.tables import DataTable
from vflsim.tables.terminal import say

HEADER = ("protocol", "test accuracy", "bytes to 0.9", "mean round")
ROWS = [("synchronous", "0.905 ± 0.007", "9.8 ± 1.2 MB", "6.5 ± 0.7 s"), ("async", "0.9", "1 B", "—")]


def shown(what: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(what)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_a_wide_terminal_shows_one_table_with_headers_on_one_line() -> None:
    assert shown(DataTable(HEADER, ROWS, title="small", notes=["A note."]), 60) == [
        "small",
        "protocol     test accuracy  bytes to 0.9   mean round",
        "─────────────────────────────────────────────────────",
        "synchronous  0.905 ± 0.007  9.8 ± 1.2 MB  6.5 ± 0.7 s",
        "async                  0.9           1 B            —",
        "A note.",
    ]


def test_columns_that_do_not_fit_go_below_with_the_first_one_repeated() -> None:
    table = DataTable(HEADER, ROWS)
    assert shown(table, 52) == [
        "protocol     test accuracy",
        "──────────────────────────",
        "synchronous  0.905 ± 0.007",
        "async                  0.9",
        "",
        "protocol     bytes to 0.9   mean round",
        "──────────────────────────────────────",
        "synchronous  9.8 ± 1.2 MB  6.5 ± 0.7 s",
        "async                 1 B            —",
    ]


def test_headers_break_between_words_before_columns_go_below() -> None:
    table = DataTable(("protocol", "test accuracy", "batches in an epoch"), [("wait", "0.9", "7")])
    assert shown(table, 34) == [
        "              test  batches in",
        "protocol  accuracy    an epoch",
        "──────────────────────────────",
        "wait           0.9           7",
    ]


@pytest.fixture(scope="module")
def table(toy_folder: Path) -> DataTable:
    return comparison_table(Results.open(toy_folder))


@pytest.mark.parametrize("width", range(30, 130, 7))
def test_every_cell_is_whole_at_every_width(width: int, table: DataTable) -> None:
    text = shown(table, width)
    assert max(map(len, text)) <= width
    body = "\n".join(text)
    for row in table.rows:
        for cell in row:
            assert cell in body


def test_a_table_without_rows_is_its_header() -> None:
    assert shown(DataTable(("a", "b"), []), 40)[0] == "a  b"


def test_paragraphs_wrap_between_words_in_a_terminal_only() -> None:
    text = "error: results/quickstart: cannot be written\n  remedy: free some space"
    for terminal in (True, False):
        console = Console(file=io.StringIO(), width=24, force_terminal=terminal, color_system=None)
        say(console, text)
        said = console.file.getvalue()  # type: ignore[attr-defined]
        assert said.split() == text.split()
        assert (said == text + "\n") is not terminal
        assert (max(map(len, said.splitlines())) <= 24) is terminal


def test_a_table_prints_as_in_a_terminal_and_has_its_cells_as_a_frame_and_as_html(
    monkeypatch: pytest.MonkeyPatch, results: Results
) -> None:
    table = results.summary()
    for columns in (60, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert str(table).splitlines() == [line.rstrip() for line in shown(table, columns)]
    assert [(name, *cells) for name, *cells in table.frame.itertuples()] == table.rows
    assert list(table.frame.columns) == list(table.header[1:])
    page = results._repr_html_()
    assert all(f"<td>{escape(cell)}</td>" in page for row in table.rows for cell in row)
    assert all(escape(note) in page for note in table.notes)


def test_html_shows_text_as_it_is() -> None:
    assert "<td>&lt;b&gt;</td>" in DataTable(("a",), [("<b>",)])._repr_html_()


COSTS = DataTable(
    ("protocol", "reached", "time to 0.9", "bytes to 0.9", "speed-up vs wait"),
    [
        ("wait", "5 of 5", "189 ± 45 s", "58 (51 … 64) MB", "—"),
        ("fedvs", "5 of 5", "6.5 s", "50 MB", "29.2 (23 … 39) ×"),
    ],
    importance=(0, 2, 4, 1, 3),
    elsewhere="the report has all",
)


def in_terminal(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    console.print(COSTS)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("width", "rest"),
    [
        (80, ""),
        (56, "bytes to 0.9"),
        (45, "reached, bytes to 0.9"),
        (20, "reached, bytes to 0.9, speed-up vs wait"),
    ],
)
def test_a_narrow_terminal_shows_what_matters_most_and_names_the_rest(width: int, rest: str) -> None:
    lines = in_terminal(width)
    note = " ".join(" ".join(lines).split())
    assert (f"Left out of {width} columns: {rest}; the report has all." in note) == bool(rest)
    assert sum(line.startswith("protocol") for line in lines) == 1, "no second block"
    assert "189 ± 45 s" in note, "the most important column beside the first"


def test_a_file_gets_all_columns() -> None:
    assert "speed-up vs wait" in " ".join(shown(COSTS, 120))
    assert not any("Left out" in line for line in shown(COSTS, 20))
