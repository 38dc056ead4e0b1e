"""CSV files as spreadsheets of different countries write them."""

from pathlib import Path

import numpy as np
import pytest

from vflsim.errors import DataError
from vflsim.learning.data.table import read_table

ROWS = [("age", "net income", "y"), ("31", "1.5", "0"), ("45", "-2.25", "1"), ("27", "3e2", "0")]


def written(path: Path, delimiter: str, decimal: str = ".", quoted: bool = False) -> Path:
    lines = [delimiter.join(f'"{cell}"' if quoted else cell for cell in row) for row in ROWS]
    path.write_text("\n".join([lines[0], *(line.replace(".", decimal) for line in lines[1:])]) + "\n")
    return path


@pytest.mark.parametrize("quoted", [False, True], ids=["plain", "quoted"])
@pytest.mark.parametrize(
    ("delimiter", "decimal"), [(",", "."), (";", "."), ("\t", "."), ("|", "."), (";", ","), ("\t", ",")]
)
def test_delimiter_and_decimal_comma_are_recognised(delimiter: str, decimal: str, quoted: bool, tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "rows.csv", delimiter, decimal, quoted))
    assert table.names == ["age", "net income", "y"]
    assert np.array_equal(table.view("x", ["y"]).values, [[31, 1.5], [45, -2.25], [27, 300]])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a;b,y\n1,0\n", ["a;b", "y"]),  # commas as before, wherever they fit
        ('"a;b;c",y\n"1;2;3",0\n', ["a;b;c", "y"]),
        ('"a, b";y\n1;0\n', ["a, b", "y"]),
        ("a;b\n1,5;0\n", ["a", "b"]),
        ("a\n1\n", ["a"]),
    ],
    ids=repr,
)
def test_what_is_quoted_or_inside_a_number_delimits_nothing(text: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    assert read_table(tmp_path / "rows.csv").names == names


@pytest.mark.parametrize(
    ("cells", "value"),
    [(["1,500", "2,250"], "1,500"), (["1,5", "2.5"], "1,5")],
    ids=["thousands or decimals", "both signs"],
)
def test_a_comma_that_could_mean_two_things_is_refused_with_a_remedy(
    cells: list[str], value: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("a;y\n" + "".join(f"{cell};0\n" for cell in cells))
    with pytest.raises(DataError, match="which is not a number") as caught:
        read_table(tmp_path / "rows.csv").view("x", ["y"])
    assert repr(value) in str(caught.value)
    assert "write it with a decimal point" in str(caught.value)
