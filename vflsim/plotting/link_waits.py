"""What messages lose on links: the time that they wait for a link, or share it with others."""

from __future__ import annotations

import numpy as np

from vflsim.plotting.critical_path import Causes
from vflsim.results.events import Spans, activities, downtime
from vflsim.results.read import StoredRun
from vflsim.streams import SERVER

UP, DOWN, PEERS = "the server's up-link", "the server's down-link", "clients' links"


def link_waits(run: StoredRun) -> list[tuple[str, int, int, float]]:
    """Return (link, client, messages, seconds) of a run: how long each client's messages wait on each link.

    A message waits for as long as it takes from the end of its latency to its last bit, longer than it would alone on
    its path, at the highest rates; the time in which one of its parties is away does not count. Messages between
    clients count for their sender. Empty without facts about the network.
    """
    if run.info.network is None:
        return []
    causes = Causes(activities(run))
    events = causes.events
    place = np.flatnonzero(events.is_a("transfer") & events.done)
    sender, receiver, facts = events.party[place], events.peer[place], run.info.network
    rate = np.minimum(facts.rates("up", sender.tolist()), facts.rates("down", receiver.tolist()))
    began, ended = causes.latency_ends(place), events.end[place]
    lost = ended - began - 8 * events.bytes[place] / rate
    out = events.is_a("outage")
    away = downtime(events.party[out], events.start[out], events.end[out])
    for one, other in {*zip(sender.tolist(), receiver.tolist(), strict=True)} if away else ():
        if spans := [away[party] for party in (one, other) if party in away]:
            some = (sender == one) & (receiver == other)
            lost[some] -= Spans.joined(spans).between(began[some], ended[some])
    lost = np.where(lost > 1e-9 * ended, lost, 0.0)  # less is rounding
    client = np.where(sender == SERVER, receiver, sender)
    link = np.select([sender == SERVER, receiver == SERVER], [0, 1], 2)
    found = []
    for number, name in enumerate((UP, DOWN, PEERS)):
        own = link == number
        for each in np.unique(client[own]).tolist():
            some = own & (client == each)
            found.append((name, each, int(np.count_nonzero(some)), float(lost[some].sum())))
    return found
