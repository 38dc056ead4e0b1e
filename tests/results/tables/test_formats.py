"""Tables as LaTeX, Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from vflsim.results import Results
from vflsim.results.tables.formats import amount_of, escaped, written
from vflsim.text_table import TextTable

HOSTILE = "50 % & #1 $x_i^2$ {a} \\input{/etc/passwd} ~ < > | \" ` ' -- --- “q” ≥ − µ …"
TABLE = TextTable(
    ("protocol", "time to 0.9", "bytes", "speed-up vs wait", "seeds"),
    [
        ("wait", "2.5 ± 1.1 s", "1.234 MB", "—", "3"),
        ("t-sync", "36.1 ± 1.5 ms", "12 ± 3 kB", "13.2 (9.1 … 19) ×", "10"),
        (HOSTILE, "> 52 s", "−5 ± 11 kB", "> 1.7 … 2.75 ×", "3"),
    ],
    title=f"a_b: {HOSTILE}",
    notes=["Means over seeds ± 95 % Student-t intervals.", f"Not in the caption: {HOSTILE}"],
)


def number(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


@pytest.mark.parametrize(
    ("cell", "value", "low", "high", "unit"),
    [
        ("2.8 ± 0.6 s", "2.8", "2.2", "3.4", "s"),
        ("1.275 (0.968 … 1.68) MB", "1.275", "0.968", "1.68", "MB"),
        ("−0.034 ± 0.010", "-0.034", "-0.044", "-0.024", ""),
        ("> 52 s", None, "52", None, "s"),
        ("< 4.61 … 7.82 ×", None, None, "7.82", "×"),
        ("> 4.61 … 7.82 ×", None, "4.61", None, "×"),
        ("12,300 ×", "12300", None, None, "×"),
        ("1e+06", "1e+06", None, None, ""),
    ],
)
def test_a_cell_has_the_numbers_that_it_shows(
    cell: str, value: str | None, low: str | None, high: str | None, unit: str
) -> None:
    found = amount_of(cell)
    assert found is not None
    assert (found.value, *found.ends(), found.unit) == (number(value), number(low), number(high), unit)


@pytest.mark.parametrize("cell", ["—", "target", "2 of 3: 45 s, > 60 s", "1 of 2", "5 furlongs", ""])
def test_words_and_several_amounts_are_no_amount(cell: str) -> None:
    assert amount_of(cell) is None


def rows_of(text: str) -> list[list[str]]:
    """The cells between the rules of the only table, as written."""
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0].replace(r"\midrule", "")
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in lines]


def test_latex_is_well_formed_whatever_the_texts_are() -> None:
    text = written([TABLE], "latex")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert code.isascii()
    bare = re.sub(r"\\[\\{}&%$#_]", "", code)
    assert bare.count("{") == bare.count("}")
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert not re.search(r"[%#$]", bare)
    assert r"\input" not in code
    begun = re.findall(r"\\(begin|end)\{(\w+)\}", code)
    assert begun == [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")]
    assert {len(row) for row in rows_of(text)} == {len(TABLE.header)}
    assert text.startswith("% in the preamble: ")


def test_columns_of_amounts_are_siunitxs_with_one_unit_and_the_digits_shown() -> None:
    text = written([TABLE], "latex")
    head, *rows = rows_of(text)
    assert head[1:3] == [r"{time to 0.9 [\si{\second}]}", r"{bytes [\si{\mega\byte}]}"]
    assert [row[1] for row in rows] == ["2.5(11)", "0.0361(15)", r"{\ensuremath{>} 52 s}"]
    assert [row[2] for row in rows] == ["1.234", "0.012(3)", "-0.005(11)"]
    assert rows[1][3] == r"13.2 (9.1 \ldots{} 19) \ensuremath{\times}"
    kinds = re.findall(r"S\[table-format=([^,]+), separate-uncertainty\]", text)
    assert kinds == ["1.4(2)", "-1.3(2)", "2"]


def test_the_caption_says_what_the_sign_means_and_other_notes_are_comments() -> None:
    text = written([TABLE], "latex")
    (caption,) = re.findall(r"\\caption\{(.*)\}\n", text)
    assert caption.endswith(r"Means over seeds \ensuremath{\pm} 95 \% Student-t intervals.")
    assert "Not in the caption" not in caption
    scores = TextTable(
        ("lr", "wait"), [("0.1", "* 0.9"), ("0.2", "0.8")], title="t", notes=["Score: a mean.", "Other."]
    )
    assert r"\caption{t. Score: a mean.}" in written([scores], "latex")
    assert "% Not in the caption: 50 % & #1" in text
    assert escaped("a--b_c") == r"a-{}-b\_c"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on the PATH")
def test_latex_compiles(tmp_path: Path, results: Results) -> None:
    lines = [r"\documentclass{article}\usepackage{booktabs}\usepackage{siunitx}\begin{document}"]
    lines += [written([TABLE, results.summary(pairing=True)], "latex"), r"\end{document}"]
    (tmp_path / "t.tex").write_text("\n".join(lines))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "t.pdf").stat().st_size > 10_000


def test_csv_has_every_cell_and_behind_it_its_numbers_in_one_unit() -> None:
    head, *rows = csv.reader(written([TABLE], "csv").splitlines())
    assert head[:5] == ["protocol", "time to 0.9", *(f"time to 0.9: {what} [s]" for what in ("value", "low", "high"))]
    assert [row[1:5] for row in rows] == [
        ["2.5 ± 1.1 s", "2.5", "1.4", "3.6"], ["36.1 ± 1.5 ms", "0.0361", "0.0346", "0.0376"], ["> 52 s", "", "52", ""]
    ]  # fmt: skip
    assert [row[head.index("speed-up vs wait: low")] for row in rows] == ["", "9.1", "1.7"]
    assert head[-1] == "seeds"  # numbers already
    assert rows[2][0] == TABLE.rows[2][0]
    two = written([TABLE, TABLE], "csv").splitlines()
    assert [line for line in two if line.startswith('"a_b')] == [two[0], two[6]]


def test_markdown_and_html_have_title_rows_and_notes() -> None:
    page = written([TABLE, TABLE], "markdown")
    assert page.startswith("## a_b: ")
    assert page.count("\n| t-sync | 36.1 ± 1.5 ms |") == page.count("\n- Means over seeds") == 2
    html = written([TABLE], "html")
    assert "<td>36.1 ± 1.5 ms</td>" in html
    assert "&lt; &gt;" in html
