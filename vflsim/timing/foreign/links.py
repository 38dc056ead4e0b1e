"""Links as `iperf3 --json` and `ping` have measured them, a client each.

A file is a client, or a folder, whose files are about one client: uploads (``iperf3 -c SERVER --json``), downloads
(with ``--reverse``; ``--bidir`` has both), and round trips (what ``ping`` prints, or a CSV with a column ``rtt_ms``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from vflsim.errors import DataError
from vflsim.files import parsed_json, text
from vflsim.timing.foreign.base import ForeignClient, Format, Platform, brief, head, is_number
from vflsim.timing.readers import read_observed

_TRIP = re.compile(r"\btime[=<]([\d.]+) ?ms")
_COLUMN = "rtt_ms"
_FINISHED = "what iperf3 --json writes of a finished measurement"
_LEAST_BPS, _MOST_BPS = 1.0, 1e15
_LONGEST_MS = 1e9
"""A round trip of 11 days, far above what any network has."""


class Links(Format):
    """Rates from iperf3, latencies from ping: half of each round trip, as a law that fits."""

    title = "links measured by iperf3 --json and ping"

    @classmethod
    @override
    def recognises(cls, path: Path) -> bool:
        if os.path.isdir(path):
            return any(cls.recognises(file) for file in _files(path))
        start = head(path)
        return b'"test_start"' in start or b'"connected"' in start or b"icmp_seq" in start or _COLUMN.encode() in start

    @override
    def read(self) -> Platform:
        names = [path.stem for path in self.paths]
        if len({*names}) < len(names):
            raise self.error("names of clients stand twice", "files or folders with names of their own")
        note = (
            "A rate is what one TCP connection got. Round trips of ping have no queue; those of a busy link are longer."
        )
        paths = dict(zip(names, self.paths, strict=True))
        return Platform({name: self._client(paths[name]) for name in self.chosen(names)}, notes=(note,))

    def _client(self, path: Path) -> ForeignClient:
        link: dict[str, Any] = {}
        files = _files(path) if os.path.isdir(path) else [path]
        if not files:
            raise DataError("holds no file", str(path), "files of iperf3 --json and ping")
        for file in files:
            for key, value in self._measured(file):
                if key in link:
                    what = f"{key} is measured twice"
                    raise DataError(what, str(file), "one file for each of up, down and round trips")
                link[key] = value
        return ForeignClient({"link": link})

    def _measured(self, file: Path) -> Iterator[tuple[str, Any]]:
        try:
            source = text(file)
            if source.lstrip().startswith("{"):
                yield from self._iperf(file, parsed_json(source))
                return
            trips = self._trips(file, source)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"cannot be read: {reason}", str(file), "iperf3 --json, ping, or CSV") from None
        if not len(trips):
            raise DataError("holds no round trip", str(file), f"lines with time=… ms, or a column {_COLUMN}")
        if (longest := trips.max()) > _LONGEST_MS:
            raise DataError(f"holds a round trip of {longest:g} ms", str(file), f"at most {_LONGEST_MS:g} ms")
        from vflsim.timing.measured.calibration import entry_of, law_of

        yield "latency", entry_of(law_of(trips / 2e3))

    def _trips(self, file: Path, source: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return round trips in ms."""
        if file.suffix.lower() == ".csv":
            return 1e3 * read_observed(file, _COLUMN, "ms")
        return np.array([float(trip) for trip in _TRIP.findall(source)])

    def _iperf(self, file: Path, report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if error := report.get("error"):
            raise DataError(f"iperf3 failed: {error if isinstance(error, str) else brief(error)}", str(file), _FINISHED)
        start, end = _part(file, report, "start"), _part(file, report, "end")
        test = _part(file, start, "test_start")
        if (protocol := test.get("protocol", "TCP")) != "TCP":
            what = f"protocol is {protocol if isinstance(protocol, str) else brief(protocol)}"
            raise DataError(what, str(file), "TCP, as messages have")
        first = "down" if test.get("reverse") else "up"
        yield first, self._rate(file, end, "sum_received")
        if "sum_received_bidir_reverse" in end:
            yield "down", self._rate(file, end, "sum_received_bidir_reverse")

    def _rate(self, file: Path, end: Mapping[str, Any], key: str) -> str:
        rate = _part(file, end, key).get("bits_per_second")
        if not is_number(rate) or not _LEAST_BPS <= rate <= _MOST_BPS:
            allowed = f"a number between {_LEAST_BPS:g} and {_MOST_BPS:g}"
            raise DataError(f"end.{key}.bits_per_second is {brief(rate)}", str(file), allowed)
        return f"{rate / 1e6:.6g} Mbps"


def _part(file: Path, report: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object of iperf3's report; none at all is an empty one."""
    part = report.get(key, {})
    if not isinstance(part, dict):
        raise DataError(f"{key} is {brief(part)}", str(file), f"an object; {_FINISHED}")
    return part


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder, in order of their names. Raises DataError for a folder that cannot be read."""
    try:
        return sorted(file for file in folder.iterdir() if file.is_file())
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", str(folder), "a folder of files") from None
