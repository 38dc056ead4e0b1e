"""Write the Markdown tables that a script prints as CSV files, one file a table.

python plots/leakage.py results/defences | python plots/as_csv.py scenarios/tables/leakage-defences.csv
"""

import argparse
import csv
import re
import sys
from pathlib import Path

TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
MARKS = re.compile(r"`|\*\*")


def tables(text: str) -> list[list[list[str]]]:
    """Return the rows of every table, the head first; cells are without the marks of code and bold."""
    found = []
    for table in TABLE.findall(text if text.endswith("\n") else f"{text}\n"):
        lines = [MARKS.sub("", line)[1:-1].split("|") for line in table.splitlines()]
        head, _, *rows = [[cell.strip() for cell in line] for line in lines]
        found.append([head, *rows])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="a file for each table, in their order")
    files, found = parser.parse_args().files, tables(sys.stdin.read())
    if len(files) != len(found):
        parser.error(f"{len(found)} tables were printed: name a file for each")
    for path, rows in zip(files, found, strict=True):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
