"""What clients at their own pace, and their server, do: in a metered world, for the energy that it takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vflsim.recurrences.chunk import AT_SERVER, Stretches
from vflsim.recurrences.cycles import RETURN, STEP
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed import SingleTrip
from vflsim.timing.floats import Floats


class PacedSpans:
    """The spans of cycles of a trip. ``kind_of`` gives the kind of batches by their numbers."""

    def __init__(self, trip: SingleTrip, kind_of: Callable[[Ints], Ints]) -> None:
        self._trip, self._kind_of = trip, kind_of

    def first(self, times: Floats, taken: Floats) -> tuple[Stretches, ...]:
        """Return those before the first round, of times (M, 5) and seconds (M, 4) of the activities up to arrivals."""
        places = np.arange(len(times))
        return self._out(times[None], taken[None], np.zeros((1, len(times)), np.int64), places, after=False)

    def server(self, waited: Floats, ends: Floats, seconds: list[float], flops: Floats | None) -> Stretches:
        """Return those of the server's steps (n,)."""
        of = None if flops is None else flops[:, None]
        return Stretches("compute", waited[:, None], ends[:, None], AT_SERVER, of, np.array(seconds)[:, None])

    def cycles(self, times: Floats, taken: Floats, numbers: Ints, places: Ints) -> tuple[Stretches, ...]:
        """Return those of cycles (n, t) by the step that they follow.

        ``times`` are when their activities begin, and the last ends; of ``taken`` seconds, the waits for activations
        are a part. ``numbers`` are those of the batches that they step on.
        """
        returned, stepped = (times[..., 1 + activity] for activity in (RETURN, STEP))
        flops = self._flops(self._trip.step.flops, numbers, places)
        step = Stretches("compute", returned, stepped, places, flops, taken[..., STEP], after=True)
        skip = times.shape[-1] - 5
        out = self._out(times[..., skip:], taken[..., skip:], numbers + 1, places, after=True)
        return step, *out

    def _out(self, times: Floats, taken: Floats, numbers: Ints, places: Ints, after: bool) -> tuple[Stretches, ...]:
        """Return what clients do from when they are ready on, with the batches of these numbers."""
        ready, embedded, uploaded = (times[..., place] for place in range(3))
        flops = self._flops(self._trip.embed.flops, numbers, places)
        return (
            Stretches("compute", ready, embedded, places, flops, taken[..., 0], after),
            Stretches("radio", embedded, uploaded, places),
        )

    def _flops(self, flops: Floats | None, numbers: Ints, places: Ints) -> Floats | None:
        return None if flops is None else flops[self._kind_of(numbers), places]
