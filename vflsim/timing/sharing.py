"""Max–min fair rates of flows that cross two links each (Bertsekas & Gallager, Data Networks, sec. 6.5.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vflsim.timing.floats import Floats

Indices = NDArray[np.intp]


def max_min(first: Indices, second: Indices, capacity: Floats) -> Floats:
    """Give the max–min fair rate of every flow: no flow could be faster without a slower or equal one losing.

    Flow f crosses the links ``first[f]`` and ``second[f]`` (shapes (flows,)), which carry ``capacity`` (shape (links,),
    ≥ 0, inf allowed). Several flows between the same two links count one by one; a flow that meets no limit gets inf.

    Progressive filling, many links at a time: a link is settled once no flow on it has a smaller share on its other
    link, since shares of other links only grow while flows of smaller rates are taken off them.
    """
    rates = np.empty(len(first))
    links, todo = len(capacity), np.arange(len(first))
    room = capacity.copy()
    crowd = np.bincount(first, minlength=links) + np.bincount(second, minlength=links)
    unsettled = np.empty(links, bool)
    while len(todo):
        share = room / np.maximum(crowd, 1)
        here, there = share[first], share[second]
        unsettled.fill(False)
        unsettled[first[here > there]] = True
        unsettled[second[there > here]] = True
        fixed = ~(unsettled[first] & unsettled[second])
        rate = np.minimum(here, there)[fixed]
        rates[todo[fixed]] = rate
        if len(rate) == len(todo):
            break
        gone = np.concatenate([first[fixed], second[fixed]])
        used = np.where(rate < np.inf, rate, 0.0)  # unlimited links stay so
        room -= np.bincount(gone, np.concatenate([used, used]), links)
        crowd -= np.bincount(gone, minlength=links)
        rest = ~fixed
        first, second, todo = first[rest], second[rest], todo[rest]
    return rates
