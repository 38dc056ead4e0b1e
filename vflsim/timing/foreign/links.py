"""Links as `iperf3 --json` and `ping` have measured them, a client each.

A file is a client, or a folder, whose files are about one client: uploads (``iperf3 -c SERVER --json``), downloads
(with ``--reverse``; ``--bidir`` has both), and round trips (what ``ping`` prints, or a CSV with a column ``rtt_ms``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from vflsim.files import parsed_json, text
from vflsim.timing.foreign.base import ForeignClient, Format, Platform, head
from vflsim.timing.readers import read_observed

_TRIP = re.compile(r"\btime[=<]([\d.]+) ?ms")
_COLUMN = "rtt_ms"


class Links(Format):
    """Rates from iperf3, latencies from ping: half of each round trip, as a law that fits."""

    title = "links measured by iperf3 --json and ping"

    @classmethod
    @override
    def recognises(cls, path: Path) -> bool:
        if path.is_dir():
            return any(cls.recognises(file) for file in path.iterdir() if file.is_file())
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
        files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        for file in files:
            for key, value in self._measured(file):
                if key in link:
                    what = f"{key} is measured twice"
                    raise self.error(what, "one file for each of up, down and round trips", at=str(file))
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
            raise self.error(f"cannot be read: {error}", "iperf3 --json, ping, or CSV", at=str(file)) from None
        if not len(trips):
            raise self.error("holds no round trip", f"lines with time=… ms, or a column {_COLUMN}", at=str(file))
        from vflsim.timing.measured.calibration import entry_of, law_of

        yield "latency", entry_of(law_of(trips / 2e3))

    def _trips(self, file: Path, source: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return round trips in ms."""
        if file.suffix.lower() == ".csv":
            return 1e3 * read_observed(file, _COLUMN, "ms")
        return np.array([float(trip) for trip in _TRIP.findall(source)])

    def _iperf(self, file: Path, report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if error := report.get("error"):
            raise self.error(f"iperf3 failed: {error}", "a finished measurement", at=str(file))
        test = report.get("start", {}).get("test_start", {})
        if test.get("protocol", "TCP") != "TCP":
            raise self.error(f"protocol is {test['protocol']}", "TCP, as messages have", at=str(file))
        end = report.get("end", {})
        first = "down" if test.get("reverse") else "up"
        yield first, self._rate(file, end, "sum_received")
        if "sum_received_bidir_reverse" in end:
            yield "down", self._rate(file, end, "sum_received_bidir_reverse")

    def _rate(self, file: Path, end: Mapping[str, Any], key: str) -> str:
        rate = end.get(key, {}).get("bits_per_second")
        if not isinstance(rate, int | float) or not rate > 0:
            raise self.error(f"end.{key}.bits_per_second is {rate!r}", "a positive number", at=str(file))
        return f"{rate / 1e6:.6g} Mbps"
