"""Traces of bandwidth from files. A file is read once, for any number of links."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from vflsim.timing.profile import StepProfile
from vflsim.timing.readers import Stamp, columns_of, stamp_of, text_of
from vflsim.vocabulary.quantities import BANDWIDTH, TIME

PACKET_BITS = 8 * 1500
"""The bits of one line of a Mahimahi trace."""
MAX_WINDOWS = 10_000_000
"""The most windows of a trace: 11 days in windows of 0.1 s."""
_KEPT = 1024  # traces


def rate_trace(file: str, time_unit: str, rate_unit: str, period: float | None) -> StepProfile:
    """Give the bandwidth (bit/s) of a CSV file with the columns time and rate, each in the unit given.

    Raises ValueError, naming file, row and value, for a file that cannot be read, rows that are not two numbers, times
    that do not ascend from 0, negative rates, and a ``period`` (s) that ends before the last time.
    """
    return _rate_trace(file, stamp_of(file), time_unit, rate_unit, period)


@lru_cache(_KEPT)
def _rate_trace(file: str, _: Stamp, time_unit: str, rate_unit: str, period: float | None) -> StepProfile:
    table = columns_of(file, ("time", "rate"))
    per_time, per_rate = TIME.units[time_unit], BANDWIDTH.units[rate_unit]
    times = table[:, 0] * per_time.numerator / per_time.denominator  # exact where * 0.001 would not be
    rates = table[:, 1] * int(per_rate)
    for wrong, what, allowed in (
        (~(rates >= 0), "rate", "numbers of at least 0"),
        (~np.isfinite(times), "time", "finite numbers"),
        (np.diff(times, prepend=-1.0) <= 0, "time", "times that ascend, from 0 on"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            value = table[row, 0 if what == "time" else 1]
            raise ValueError(f"{file}: {what} {value:g} in row {row + 1}; allowed: {allowed}")
    if times[0] != 0:
        raise ValueError(f"{file}: the first time is {table[0, 0]:g}; allowed: 0, from where on its rate holds")
    if period is not None and period <= times[-1]:
        raise ValueError(f"period = {period:g} s, but {file} lasts until {times[-1]:g} s; allowed: a longer period")
    return StepProfile(times.tolist(), rates.tolist(), period)


def packet_trace(file: str, window: float, repeated: bool) -> StepProfile:
    """Give the bandwidth (bit/s) of a Mahimahi packet trace, averaged over windows of ``window`` seconds.

    Opportunity t (ms) counts for the window (a, b] that it lies in, 0 for the first; the trace, and its last window,
    end with the last opportunity. Raises ValueError, naming file, line and value, for a file that cannot be read, lines
    that are no whole numbers ≥ 0, and times that descend or are all 0.
    """
    return _packet_trace(file, stamp_of(file), window, repeated)


@lru_cache(_KEPT)
def _packet_trace(file: str, _: Stamp, window: float, repeated: bool) -> StepProfile:
    stamps = _time_stamps(file)
    end, width = int(stamps[-1]), 1000 * window
    if end / width > MAX_WINDOWS:
        raise ValueError(
            f"{file}: its last stamp, {end:,} ms, makes {end / width:,.3g} windows of {window:g} s; "
            f"allowed: up to {MAX_WINDOWS:,}; choose a wider window, or correct the stamps"
        )
    # Rounded, so that a stamp that is a multiple of the window lies in the window that it ends.
    windows = np.maximum(np.ceil(np.round(stamps / width, 9)).astype(np.int64) - 1, 0)
    packets = np.bincount(windows)
    starts = np.arange(len(packets)) * width
    lengths = np.minimum(width, end - starts)
    times, rates = starts / 1000, packets * PACKET_BITS / (lengths / 1000)
    return StepProfile(times.tolist(), rates.tolist(), end / 1000 if repeated else None)


def _time_stamps(file: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The time stamps of a packet trace, in ms."""
    stamps: list[int] = []
    last = 0
    for number, line in enumerate(text_of(file, "ascii", "a packet trace of Mahimahi").splitlines(), start=1):
        word = line.strip()
        if not word:
            continue
        if not (word.isascii() and word.isdigit() and len(word) < 16):
            raise ValueError(f"{file}:{number}: {word[:40]!r}; allowed: a whole number of milliseconds a line")
        stamp = int(word)
        if stamp < last:
            raise ValueError(f"{file}:{number}: {stamp} ms after {last} ms; allowed: time stamps that never descend")
        stamps.append(stamp)
        last = stamp
    if not last:
        what = "holds no time stamps" if not stamps else "has no time stamp above 0"
        raise ValueError(f"{file!r} {what}; allowed: a packet trace of Mahimahi, milliseconds line by line")
    return np.array(stamps, np.int64)
