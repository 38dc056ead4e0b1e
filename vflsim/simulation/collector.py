"""The garbage collector while a run is executed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 50_000, 20, 20


@contextmanager
def patient_collector() -> Iterator[None]:
    """Run the garbage collector less often: objects of thousands of parties live for at least a round.

    With Python's thresholds a run of 8,192 clients spends a third of its time in the collector. Reference counting
    frees nearly all garbage at once, without the collector.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_PATIENCE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
