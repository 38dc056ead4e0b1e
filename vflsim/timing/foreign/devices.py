"""Devices as measured: when they are there (FedScale, FLASH), their speeds (FedScale), their links (iperf3, ping).

Sources: FedScale's "Device Trace File Formats" (Lai et al., ICML 2022), and the state traces of FLASH (Yang et al.,
WWW 2021), whose devices are ready while they are locked, on Wi-Fi and charging, as in Bonawitz et al. 2019.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from typing_extensions import override

from vflsim.errors import DataError
from vflsim.files import content, must_fit, parsed_json, text
from vflsim.timing.floats import Floats
from vflsim.timing.foreign.base import ForeignClient, Format, Platform, brief, head, is_number
from vflsim.timing.readers import read_observed

_PICKLED = 30
"""Bytes of memory per byte of a pickle with numbers."""
_LEAST, _MOST = 1e-9, 1e12
"""What a device's speeds lie between, in the units of the file."""
_REFERENCE = datetime(2020, 1, 2)
"""Where the time of FLASH begins."""
_READY = {"battery_charged_on", "battery_charged_off", "screen_on", "screen_off", "screen_lock", "screen_unlock"}
_NETWORKS = {"wifi", "unknown", "2g", "3g", "4g", "5g"}
_STATES = f"{', '.join(sorted(_READY | _NETWORKS))}, or a percentage of the battery"
_CODE = {"GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"}
_NESTED_KEYS = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET"}


class _PlainValues(pickle.Unpickler):
    """Reads numbers, texts, lists and dictionaries. Whatever names a class or a function is refused."""

    @override
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which would run code")

    @override
    def persistent_load(self, identifier: Any) -> Any:
        raise pickle.UnpicklingError("it points to objects elsewhere")


class _Devices(Format):
    """A mapping of devices, as JSON or as a pickle of plain values."""

    keys: frozenset[str]
    """Keys that every device has."""

    @classmethod
    @override
    def recognises(cls, path: Path) -> bool:
        start = head(path)
        return all(f"{key}".encode() in start for key in cls.keys) and start[:1] in (b"{", b"\x80")

    def devices(self) -> dict[str, Mapping[str, Any]]:
        """Return the devices' entries by name. Raises DataError for a file that does not hold them."""
        try:
            data = content(self.path)
            value = self._unpickled(data) if data[:1] == b"\x80" else parsed_json(data)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
            reason = "it is cut off" if isinstance(error, EOFError) else getattr(error, "strerror", None) or error
            raise self.error(f"cannot be read: {reason}", "JSON, or a pickle of plain values") from None
        if not isinstance(value, dict) or not value:
            raise self.error("holds no devices", "a mapping from devices to their entries")
        devices = dict[str, Mapping[str, Any]]()
        for key, entry in value.items():
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise self.error(f"a device is called {brief(key)}", "texts or whole numbers")
            name = brief(key) if isinstance(key, int) else key
            if not isinstance(entry, dict) or not self.keys <= entry.keys():
                raise self.error(f"has no {', '.join(sorted(self.keys))}", at=f"device {name}")
            if name in devices:
                raise self.error("stands twice", "each device once", at=f"device {name}")
            devices[name] = entry
        return devices

    def _unpickled(self, data: bytes) -> Any:
        must_fit(_PICKLED * len(data), f"a pickle of {len(data):,} bytes")
        codes = {code.name for code, _, _ in pickletools.genops(data)}
        if codes & _CODE:
            raise ValueError("it names classes or functions, which would run code")
        if codes & _NESTED_KEYS:  # they may be keys, and to hash nested ones takes exponential time
            raise ValueError("it holds tuples or sets")
        try:
            return _PlainValues(io.BytesIO(data)).load()
        except (AttributeError, IndexError, KeyError, TypeError, MemoryError, OverflowError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None

    def away(self, ups: Sequence[tuple[float, float]], period: float) -> ForeignClient | None:
        """Return the entry of a device that is there in ``ups``, again and again; None if it never is."""
        downs, last = list[list[float]](), 0.0
        for start, end in _merged(ups, period):
            if start > last:
                downs.append([last, start])
            last = end
        if last == 0.0:
            return None
        if last < period:
            downs.append([last, period])
        if not downs:
            return ForeignClient({})
        keys = {"kind": "intervals", "down": downs, "period": period, "interrupted": self.wishes.interrupted}
        return ForeignClient({"availability": keys})

    def platform(self, clients: Mapping[str, ForeignClient | None], *notes: str) -> Platform:
        """Return the wanted ones of the devices that are ever there."""
        there = {name: client for name, client in clients.items() if client is not None}
        absent = len(clients) - len(there)
        left_out = (f"{absent:,} devices are never there, and are left out.",) if absent else ()
        return Platform({name: there[name] for name in self.chosen([*there])}, notes=(*left_out, *notes))


def _merged(spans: Sequence[tuple[float, float]], period: float) -> list[tuple[float, float]]:
    """Return spans of [0, period] in order, those that touch as one; one that goes past the end begins again at 0."""
    cut = [(start, min(end, period)) for start, end in spans]
    cut += [(0.0, end - period) for _, end in spans if end > period]
    joined = list[tuple[float, float]]()
    for start, end in sorted(cut):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif end > start:
            joined.append((start, end))
    return joined


class FedScaleAvailability(_Devices):
    """``client_behave_trace``: ``active`` and ``inactive`` are when a device comes and goes, until ``finish_time``."""

    title = "FedScale's trace of when clients are available"
    keys = frozenset({"active", "inactive", "finish_time"})

    @override
    def read(self) -> Platform:
        clients = dict[str, ForeignClient | None]()
        for name, entry in self.devices().items():
            starts, ends, period = (entry[key] for key in ("active", "inactive", "finish_time"))
            numbers = [*(starts if isinstance(starts, list) else [None]), *(ends if isinstance(ends, list) else [None])]
            if not all(map(is_number, (*numbers, period))) or period <= 0:
                allowed = "lists of finite numbers, at least 0, and a finish_time above 0"
                raise self.error("active, inactive and finish_time must be seconds", allowed, at=f"device {name}")
            if len(starts) != len(ends) or any(start > end for start, end in zip(starts, ends, strict=True)):
                allowed = "as many of each, and none that ends before it begins"
                raise self.error("active and inactive are no pairs of from and to", allowed, at=f"device {name}")
            spans = [(float(start), min(float(end), float(period))) for start, end in zip(starts, ends, strict=True)]
            clients[name] = self.away(spans, float(period))
        return self.platform(clients)


class FedScaleCapacity(_Devices):
    """``client_device_capacity``: ``computation`` in ms a sample, ``communication`` in kbit/s, both ways."""

    title = "FedScale's speeds of devices"
    keys = frozenset({"computation", "communication"})

    @override
    def read(self) -> Platform:
        devices = self.devices()
        for name, entry in devices.items():
            for key in sorted(self.keys):
                if not is_number(entry[key]) or not _LEAST < entry[key] < _MOST:
                    allowed = f"a number between {_LEAST:g} and {_MOST:g}"
                    raise self.error(f"{key} is {brief(entry[key])}", allowed, at=f"device {name}")
        middle = median(float(entry["computation"]) for entry in devices.values())
        clients = {}
        for name in self.chosen([*devices]):
            entry = devices[name]
            rate = f"{float(entry['communication']):.6g} kbps"
            compute = f"{float(entry['computation']) / middle:.6g}*median ms"
            clients[name] = ForeignClient({"compute": compute, "link": {"up": rate, "down": rate}})
        note = (
            "Compute times are those of the file in proportion: the median device takes `constants.median` (ms) for an "
        )
        note += "operation of a full batch. FedScale's own are of image models that these clients do not train."
        return Platform(clients, constants={"median": self.wishes.median_ms}, notes=(note,))


class FlashStates(_Devices):
    """State traces: lines of time, tab, state; a device is ready while it is locked, on Wi-Fi and charging."""

    title = "FLASH's traces of device states"
    keys = frozenset({"messages"})

    @override
    def read(self) -> Platform:
        traces = {name: self._trace(name, entry["messages"]) for name, entry in self.devices().items()}
        origin = min((begin for begin, end, _ in traces.values() if end > begin), default=0.0)
        clients: dict[str, ForeignClient | None] = dict.fromkeys(traces)
        for name, (begin, end, ready) in traces.items():
            if (period := end - begin) > 0:  # as in FLASH, a trace repeats, at its own times of the day
                shifted = [((start - origin) % period, stop - start) for start, stop in ready]
                clients[name] = self.away([(start, start + long) for start, long in shifted], period)
        note = "A device that is ready at its trace's end counts as ready until then; FLASH leaves that time out."
        return self.platform(clients, note)

    def _trace(self, name: str, messages: object) -> tuple[float, float, list[tuple[float, float]]]:
        """Return the beginning and end of a trace, and when the device is ready, in seconds of FLASH's clock."""
        if not isinstance(messages, str):
            raise self.error(f"messages is {brief(messages)}", "a text, a state a line", at=f"device {name}")
        locked = wifi = charging = False
        since: float | None = None
        times, ready = list[float](), list[tuple[float, float]]()
        for number, line in enumerate(messages.split("\n"), start=1):
            if not line.strip():
                continue
            stamp, _, state = (part.strip().lower() for part in line.strip().partition("\t"))
            try:
                now = (datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S") - _REFERENCE).total_seconds()
            except ValueError:
                place = f"device {name}, line {number}"
                raise self.error(f"{brief(stamp)} is no time", "2020-01-31 20:26:31", at=place) from None
            if state in _NETWORKS:
                wifi = state == "wifi"
            elif state in ("screen_lock", "screen_unlock"):
                locked = state == "screen_lock"
            elif state.startswith("battery_charged"):
                charging = state == "battery_charged_on"
            elif state not in _READY and not state.endswith("%"):
                raise self.error(f"{brief(state)} is no state", _STATES, at=f"device {name}, line {number}")
            if locked and wifi and charging:
                since = now if since is None else since
            elif since is not None:
                ready.append((since, now))
                since = None
            times.append(now)
        if times != sorted(times):
            raise self.error("times go backwards", "lines in the order of their times", at=f"device {name}")
        if not times:
            return 0.0, 0.0, []
        if since is not None:
            ready.append((since, times[-1]))
        return times[0], times[-1], ready


# --- links ------------------------------------------------------------------------------------------------------------


_TRIP = re.compile(r"\btime[=<]([\d.]+) ?ms")
_COLUMN = "rtt_ms"
_FINISHED = "what iperf3 --json writes of a finished measurement"
_LEAST_BPS, _MOST_BPS, _LONGEST_MS = 1.0, 1e15, 1e9  # far beyond what any network has


class Links(Format):
    """Links as `iperf3 --json` and `ping` have measured them, a client each: rates, and half of each round trip.

    A file is a client, or a folder, whose files are about one client: uploads (``iperf3 -c SERVER --json``), downloads
    (with ``--reverse``; ``--bidir`` has both), and round trips (what ``ping`` prints, or a CSV with ``rtt_ms``).
    """

    title = "links measured by iperf3 --json and ping"
    note = "A rate is what one TCP connection got. Round trips of ping have no queue; those of a busy link are longer."

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
        paths = dict(zip(names, self.paths, strict=True))
        return Platform({name: self._client(paths[name]) for name in self.chosen(names)}, notes=(self.note,))

    def _client(self, path: Path) -> ForeignClient:
        link: dict[str, Any] = {}
        files = _files(path) if os.path.isdir(path) else [path]
        if not files:
            raise DataError("holds no file", str(path), "files of iperf3 --json and ping")
        for file in files:
            for key, value in self._measured(file):
                if key in link:
                    allowed = "one file for each of up, down and round trips"
                    raise DataError(f"{key} is measured twice", str(file), allowed)
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

    def _trips(self, file: Path, source: str) -> Floats:
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
