"""The note on means over seeds that a heavy tail makes unreliable."""

from __future__ import annotations

import math
from collections.abc import Iterator

from vflsim.results.facts.heavy_tail import HeavyTail
from vflsim.results.run_set import RunSet


def heavy_tail_note(results: RunSet) -> Iterator[str]:
    """Yield the note that ± of mean times covers too seldom, with the protocols and the delay that causes it."""
    found: dict[str, list[HeavyTail]] = {}
    for run in results.runs:
        if not run.failed and run.info.heavy_tail is not None and run.info.heavy_tail.worrying:
            found.setdefault(run.protocol, []).append(run.info.heavy_tail)
    causes: dict[str, list[str]] = {}
    for name, tails in found.items():
        causes.setdefault(_cause(max(tails, key=lambda tail: tail.share)), []).append(name)
    for cause, names in causes.items():
        yield (
            f"± of mean times, bytes and differences covers less than 95 % ({', '.join(names)}): {cause}. "
            "More rounds a run help, or quantiles. Intervals of costs, which are geometric means, may fall to 89 %."
        )


def _cause(tail: HeavyTail) -> str:
    from vflsim.analysis.rounds import numbered  # imports all closed forms

    whose = f"the {tail.activity} of {numbered(tail.clients)} ({tail.kind})"
    if tail.infinite:
        return f"{whose} has no finite variance"
    return f"of {whose}, the slowest of {tail.draws:,.3g} draws has {math.floor(100 * tail.share)} % of the variance"
