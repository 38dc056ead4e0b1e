"""What parties did, and how long it took: the measurements that timing is fitted to, from a CSV log or from elsewhere.

The log is a CSV file with a row an activity and the columns ``party``, ``activity``, ``start``, ``end`` and ``bytes``,
and, if they are known, ``peer`` and ``flops``; other columns are ignored, as are empty lines and lines that begin with
``#``. Times are seconds on one clock.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np

from vflsim.errors import DataError, nearest
from vflsim.files import must_fit, opened, size
from vflsim.streams import SERVER, party_name
from vflsim.timing.floats import Floats

COMPUTE, TRANSFER, UPLOAD = "compute", "transfer", "upload"
REQUIRED = ("party", "activity", "start", "end", "bytes")
OPTIONAL = ("peer", "flops")
_ACTIVITY = re.compile(rf"({COMPUTE}|{TRANSFER})\.([^.\s]\S*)|{UPLOAD}(\.\S+)?")
_ACTIVITIES = "compute.OPERATION, transfer.MESSAGE, and upload or upload.MESSAGE for the delay before a message"
_PARTY = re.compile(r"client-([1-9]\d{0,8})")
_PER_BYTE = 8
"""Bytes of memory for a byte of the file while it is read."""


@dataclass(frozen=True, eq=False)
class MeasuredTimes:
    """Measured times of one kind: ``seconds`` and, of each, the ``size`` (FLOPs or bytes, NaN if unknown): (n,) each.

    Example::

        MeasuredTimes(np.array([0.1, 0.2]), np.array([1e6, 2e6])).seconds.mean()
    """

    seconds: Floats
    size: Floats

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> MeasuredTimes:
        """Make one of pairs of seconds and size."""
        table = np.asarray(pairs, np.float64).reshape(-1, 2)
        return cls(table[:, 0].copy(), table[:, 1].copy())

    @classmethod
    def joined(cls, parts: Sequence[MeasuredTimes]) -> MeasuredTimes:
        """Put several together."""
        return cls(np.concatenate([each.seconds for each in parts]), np.concatenate([each.size for each in parts]))


@dataclass(frozen=True)
class ActivityLog:
    """Measured activities by what took the time.

    ``operations`` are by party (0: the server, m: client m) and operation, with their FLOPs. ``uplinks`` and
    ``downlinks`` are one-way times of the messages from and to each client, with their bytes. ``upload_delays`` are
    the delays before a client's messages, without size. ``notes`` say what was left out.

    Example: ``read_log("log.csv").operations[1, "embed"].seconds.mean()``
    """

    source: str
    operations: Mapping[tuple[int, str], MeasuredTimes]
    uplinks: Mapping[int, MeasuredTimes]
    downlinks: Mapping[int, MeasuredTimes]
    upload_delays: Mapping[int, MeasuredTimes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class LogBuilder:
    """Collects activities one by one, and makes the log of them.

    Example::

        builder = LogBuilder("by hand")
        builder.operation(1, "embed", 0.25, flops=1e6)
        builder.message(1, 0, 0.01, size=8_000)
        builder.log().uplinks[1].seconds
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._operations: dict[tuple[int, str], list[tuple[float, float]]] = {}
        self._links: dict[tuple[int, int], list[tuple[float, float]]] = {}
        self._delays: dict[int, list[tuple[float, float]]] = {}

    def operation(self, party: int, kind: str, seconds: float, flops: float = math.nan) -> None:
        """Add a computation of ``party``."""
        self._operations.setdefault((party, kind), []).append((seconds, flops))

    def message(self, sender: int, receiver: int, seconds: float, size: int) -> None:
        """Add a message of ``size`` bytes between the server and a client, and how long it was under way."""
        self._links.setdefault((sender, receiver), []).append((seconds, float(size)))

    def upload_delay(self, client: int, seconds: float) -> None:
        """Add a delay before a client's message."""
        self._delays.setdefault(client, []).append((seconds, math.nan))

    def log(self, notes: Sequence[str] = ()) -> ActivityLog:
        """Return all that has been added; parties and operations are in order."""
        links = sorted(self._links.items())
        return ActivityLog(
            self._source,
            {key: MeasuredTimes.of(pairs) for key, pairs in sorted(self._operations.items())},
            {sender: MeasuredTimes.of(pairs) for (sender, receiver), pairs in links if receiver == SERVER},
            {receiver: MeasuredTimes.of(pairs) for (sender, receiver), pairs in links if sender == SERVER},
            {client: MeasuredTimes.of(pairs) for client, pairs in sorted(self._delays.items())},
            tuple(notes),
        )


def read_log(file: str | Path, after: float = 0.0) -> ActivityLog:
    """Read a CSV log; leave out what begins less than ``after`` seconds after the first activity.

    Raises DataError with file, line and column for what is not as the module says, and for a log without activities.

    Example: ``read_log("log.csv").operations[1, "embed"]``
    """
    path = Path(file)
    try:
        with opened(path) as source:
            must_fit(_PER_BYTE * size(source), f"a log of {size(source):,} bytes")
            text = source.read().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", str(path), "a CSV file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"the byte {error.start + 1:,} is not UTF-8", str(path), "a CSV file in UTF-8") from None
    except ValueError as error:
        raise DataError(str(error), str(path), "a smaller log") from None
    rows = list(_rows(path, text))
    if not rows:
        raise DataError("holds no activity", str(path), "a header, and a row for each activity", _remedy())
    starts = [start for start, _ in rows]
    builder, begin = LogBuilder(str(path)), min(starts) + after
    if max(starts) < begin:
        last = max(starts) - begin + after
        raise DataError(f"no activity begins {after:g} s after the first one", str(path), f"at most {last:g} s")
    for start, add in rows:
        if start >= begin:
            add(builder)
    return builder.log()


def _rows(path: Path, text: str) -> Iterator[tuple[float, Callable[[LogBuilder], None]]]:
    """Yield when each activity begins, and what adds it to a log."""
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1))
    content = [(number, line) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not content:
        return
    header = [name.strip() for name in next(csv.reader([content[0][1]]))]
    place = f"{path}:{content[0][0]}"
    if twice := [name for name in header if header.count(name) > 1 and name in (*REQUIRED, *OPTIONAL)]:
        raise DataError(f"the column {twice[0]!r} stands twice", place, "every column once", "rename one of them")
    for name in REQUIRED:
        if name not in header:
            hint = nearest(name, header) or _remedy()
            raise DataError(f"there is no column {name!r}", place, f"a header with {', '.join(REQUIRED)}", hint)
    for number, line in content[1:]:
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if len(cells) != len(header):
            what = f"{len(cells)} cells under {len(header)} columns"
            raise DataError(what, f"{path}:{number}", f"{len(header)} cells, empty ones included", "mend the row")
        yield _Cells(dict(zip(header, cells, strict=True)), f"{path}:{number}").activity()


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of a row by column, and its place."""

    cells: Mapping[str, str]
    place: str

    def activity(self) -> tuple[float, Callable[[LogBuilder], None]]:
        match = _ACTIVITY.fullmatch(self.cells["activity"])
        if match is None:
            self._refuse("activity", _ACTIVITIES, "leave rows of other activities out")
        what, name = match[1] or UPLOAD, match[2] or ""
        party = self._party("party", f"{party_name(SERVER)}, client-1, client-2, …")
        start, end = self._number("start"), self._number("end")
        if end < start:
            self._refuse("end", f"at least the start, {start:g}", "give both in seconds on one clock")
        if what == UPLOAD and party == SERVER:
            self._refuse("party", "client-1, client-2, … of an upload", "only clients have an upload delay")
        if what == COMPUTE:
            flops = self._number("flops") if self.cells.get("flops") else math.nan
            return start, partial(LogBuilder.operation, party=party, kind=name, seconds=end - start, flops=flops)
        if what == TRANSFER:
            size, peer = self._bytes(), self._peer(party)
            return start, partial(LogBuilder.message, sender=party, receiver=peer, seconds=end - start, size=size)
        return start, partial(LogBuilder.upload_delay, client=party, seconds=end - start)

    def _bytes(self) -> int:
        number = self._number("bytes")
        if number != int(number):
            self._refuse("bytes", "a whole number, at least 0", "give the size of the message in bytes")
        return int(number)

    def _peer(self, party: int) -> int:
        if party != SERVER:
            if self.cells.get("peer", "") not in ("", party_name(SERVER)):
                self._refuse("peer", "server, or nothing, of a client's transfer", "only messages with the server fit")
            return SERVER
        if not self.cells.get("peer"):
            what, remedy = "a transfer of the server has no peer", "add a column peer with the client that receives it"
            raise DataError(what, f"{self.place}: peer", "client-1, client-2, …", remedy)
        peer = self._party("peer", "client-1, client-2, …")
        if peer == SERVER:
            self._refuse("peer", "client-1, client-2, … of a transfer of the server", "name the receiver")
        return peer

    def _party(self, column: str, allowed: str) -> int:
        name = self.cells[column]
        if name == party_name(SERVER):
            return SERVER
        match = _PARTY.fullmatch(name)
        if match is None:
            self._refuse(column, allowed, "number the clients from 1")
        return int(match[1])

    def _number(self, column: str) -> float:
        try:
            number = float(self.cells[column])
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            unit = {"bytes": "bytes", "flops": "operations"}.get(column, "seconds")
            self._refuse(column, f"a number of {unit}, at least 0", "write it with a decimal point, and no unit")
        return number

    def _refuse(self, column: str, allowed: str, remedy: str) -> NoReturn:
        raise DataError(f"{column} is {self.cells[column]!r}", f"{self.place}: {column}", allowed, remedy)


def _remedy() -> str:
    return f"begin the file with the line {','.join((*REQUIRED, *OPTIONAL))}"
