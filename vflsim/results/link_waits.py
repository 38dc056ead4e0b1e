"""What messages lose on links: the time that they wait for a link, or share it with others; and lines left idle."""

from collections.abc import Iterable

import numpy as np

from vflsim.results.events import Activities, Causes, Ints, Mask, Spans
from vflsim.results.facts import NetworkFacts
from vflsim.streams import SERVER, party_name
from vflsim.vocabulary.amounts import quantity
from vflsim.world.networks import FLUID

UP, DOWN, PEERS = "the server's up-link", "the server's down-link", "clients' links"
LEAST = 0.01
"""The least share of a round that messages wait on average, for their wait to be told."""

Waits = Iterable[tuple[str, int, int, float]]
"""(link, client, messages, seconds): how long each client's messages wait on each link."""


class LinkUse:
    """The messages of a run that have arrived: when each could have begun to move, when it did, and who was away."""

    def __init__(self, events: Activities, network: NetworkFacts) -> None:
        causes = Causes(events)
        events = causes.events
        place = np.flatnonzero(events.is_a("transfer") & events.done)
        self._network = network
        self._until = float(events.end.max(initial=0.0))
        self._away = events.downtime()
        self._sender, self._receiver = events.party[place], events.peer[place]
        self._ready, self._began, self._ended = causes.latency_ends(place), events.start[place], events.end[place]
        self._bits = 8 * events.bytes[place]

    def waits(self) -> list[tuple[str, int, int, float]]:
        """Return how long each client's messages wait on each link.

        A message waits for as long as it takes from the end of its latency to its last bit, longer than it would alone
        on its path, at the highest rates; the time in which one of its parties is away does not count. Messages between
        clients count for their sender. With slow start this includes waits for a window, and the link's name says so.
        """
        sender, receiver = self._sender, self._receiver
        up, down = self._network.rates("up", sender.tolist()), self._network.rates("down", receiver.tolist())
        lost = self._ended - self._ready - self._bits / np.minimum(up, down)
        for some, away in self._absences(np.arange(len(sender))):
            lost[some] -= away.between(self._ready[some], self._ended[some])
        lost = np.where(lost > 1e-9 * self._ended, lost, 0.0)  # less is rounding
        client = np.where(sender == SERVER, receiver, sender)
        link = np.select([sender == SERVER, receiver == SERVER], [0, 1], 2)
        windows = "" if self._network.transport == FLUID else " or for a window of its connection"
        waits = []
        for number, name in enumerate((UP, DOWN, PEERS)):
            of_link = link == number
            for each in np.unique(client[of_link]).tolist():
                some = of_link & (client == each)
                waits.append((name + windows, each, int(np.count_nonzero(some)), float(lost[some].sum())))
        return waits

    def idlest_line(self) -> tuple[str, float]:
        """Return the line of a serial network that is idle longest while messages wait for it, and its share of time.

        Others have the line at these messages' other end, or the server's slots. Lines of clients count
        for their messages to other clients. The time in which one of its parties is away is no wait.
        """
        between_clients = (self._sender != SERVER) & (self._receiver != SERVER)
        lines = {UP: (self._sender == SERVER, self._sender == SERVER)}
        lines[DOWN] = self._receiver == SERVER, self._receiver == SERVER
        for client in np.unique(self._sender[between_clients]).tolist():
            by_client = self._sender == client
            lines[f"{party_name(client)}'s up-link"] = by_client & between_clients, by_client
        shares = {
            name: self._idle(np.flatnonzero(waiting), moving) / self._until if self._until else 0.0
            for name, (waiting, moving) in lines.items()
        }
        return max(shares.items(), key=lambda line: line[1])

    def _idle(self, waiting: Ints, moving: Mask) -> float:
        """Return the seconds in which some of the messages wait, and no others move."""
        absences = list(self._absences(waiting))
        always_there = np.setdiff1d(waiting, np.concatenate([waiting[:0], *(some for some, _ in absences)]))
        waits = [Spans.union(self._ready[always_there], self._began[always_there])]
        waits += [Spans.union(self._ready[some], self._began[some]).minus(away) for some, away in absences]
        idle = Spans.joined(waits).minus(Spans.union(self._began[moving], self._ended[moving]))
        return float((idle.ends - idle.starts).sum())

    def _absences(self, messages: Ints) -> Iterable[tuple[Ints, Spans]]:
        """Yield those of the messages that have a party in common that is ever away, and when one of both is."""
        sender, receiver = self._sender[messages], self._receiver[messages]
        for one, other in {*zip(sender.tolist(), receiver.tolist(), strict=True)} if self._away else ():
            if spans := [self._away[party] for party in (one, other) if party in self._away]:
                yield messages[(sender == one) & (receiver == other)], Spans.joined(spans)


def longest_wait(waits: Waits, round_s: float) -> str:
    """Name the link on which messages lose most time, and whose they are; empty if they lose little of a round."""
    by_link = dict[str, list[tuple[int, int, float]]]()
    for name, client, messages, seconds in waits:
        by_link.setdefault(name, []).append((client, messages, seconds))
    totals = {name: sum(lost for _, _, lost in losses) for name, losses in by_link.items()}
    link = max(totals, key=totals.__getitem__, default="")
    mean_s = totals[link] / sum(many for _, many, _ in by_link[link]) if totals else 0.0
    if mean_s <= 0 or mean_s < LEAST * round_s:
        return ""
    client, most = max(((client, lost / many) for client, many, lost in by_link[link]), key=lambda each: each[1])
    return f"messages wait longest on {link}, {_three(mean_s)} each on average, and {_three(most)} for client {client}"


def _three(seconds: float) -> str:
    return str(quantity(float(f"{seconds:.3g}"), "s"))
