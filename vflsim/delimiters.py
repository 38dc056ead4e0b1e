"""How a CSV file separates its fields, and writes the decimal point, from its beginning."""

from __future__ import annotations

import re

DELIMITERS = (b",", b";", b"\t", b"|")
"""In the order in which they are tried."""
_QUOTED = re.compile(rb'"[^"]*"')
_WITH_COMMA, _WITH_POINT = (rb'\s*"?[-+]?\d+' + sign + rb'\d+([eE][-+]?\d+)?"?\s*' for sign in (rb",", rb"\."))
_THOUSANDS = re.compile(rb'\s*"?[-+]?\d{1,3},\d{3}"?\s*')


def delimiter_of(start: bytes, skip_lines: int = 0) -> bytes:
    """Return the delimiter of a file that begins with ``start``; the header is below ``skip_lines``.

    It is the first one that divides the header and the line below it into equally many fields, two at least; else a
    comma. Delimiters in double quotes do not count.
    """
    header, row = ([*_QUOTED.sub(b"", start).splitlines()[skip_lines:], b"", b""])[:2]
    equal = [each for each in DELIMITERS if 0 < header.count(each) == row.count(each)]
    if len(equal) > 1 and equal[0] == b",":  # of numbers without a header: 1,5;2,5
        cells = [*header.split(equal[1]), *row.split(equal[1])]
        equal = equal[1:] if all(re.fullmatch(_WITH_COMMA, cell) for cell in cells if b"," in cell) else equal
    return equal[0] if equal else DELIMITERS[0]


def decimal_of(start: bytes, delimiter: bytes) -> bytes:
    """Return the decimal point of a file with this ``delimiter``: a comma, if it is certain; else a point.

    A comma is certain if some number has one, none has a point, and not all could be thousands (``1,500``).
    """
    if delimiter == b",":
        return b"."
    cells = [cell for line in start.splitlines() for cell in line.split(delimiter)]
    commas = [cell for cell in cells if re.fullmatch(_WITH_COMMA, cell)]
    points = any(re.fullmatch(_WITH_POINT, cell) for cell in cells)
    return b"," if commas and not points and not all(map(_THOUSANDS.fullmatch, commas)) else b"."
