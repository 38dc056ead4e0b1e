"""Turns the acts of sample clients into acts with times for all clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from vflsim.recurrences.chunk import Bools
from vflsim.recurrences.sources import PeerLinks, Probe, delays, latencies, rate, unit_seconds
from vflsim.recurrences.stages import Ints, Stage
from vflsim.recurrences.timed import (
    Draw,
    Series,
    Timed,
    TimedAct,
    TimedAnswers,
    TimedDelay,
    TimedSending,
    TimedService,
    TimedToPeers,
    TimedTurns,
    TimedWork,
    UnlikeDraw,
    UnlikeSeries,
    Way,
)
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.timing.compute import law
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import (
    Act,
    Activated,
    Acts,
    ClientDelay,
    ClientSleep,
    ClientsWait,
    ClientWork,
    InTurn,
    ServerWaits,
    ServerWork,
    ToClients,
    ToPeers,
    ToServer,
)


class Timetable:
    """Knows how many draws of each purpose the acts so far have taken. Acts come in the order of time."""

    def __init__(self, setting: Setting, seed: int, clients: list[int]) -> None:
        self._setting, self._seed, self._clients = setting, seed, clients
        self._stages: dict[tuple[str, str], Stage] = {}
        self._taken: Counter[tuple[str, str]] = Counter()
        self._known_factors: dict[tuple[int, ...], tuple[Floats, object]] = {}
        self._known_sorts: tuple[list[int], list[int]] | None = None

    def timed(self, probes: Sequence[Probe]) -> Timed:
        """Return the acts of a round with their times, from the acts on a batch of each size."""
        each = _purposes(probes[0].acts, len(self._clients))
        series = {key: Series(self._stage(key), count, self._taken[key], key[1]) for key, count in each.items()}
        for key, counts in self._unlike(probes[0].acts).items():
            series[key] = UnlikeSeries.of(self._stage(key), counts, self._taken[key], key[1])
        self._taken += each
        return self._timed(probes, series, Counter())

    def _unlike(self, acts: Acts) -> dict[tuple[str, str], Ints]:
        """Count the draws in a round of every client (M,), for the purposes of which some take fewer than others."""
        works = [act for act in acts if isinstance(act, ClientWork)]
        keys = {_of_work(act) for act in works if act.by is not None}
        return {key: self._works(act for act in works if _of_work(act) == key) for key in keys}

    def _works(self, works: Iterable[ClientWork]) -> Ints:
        """Count how many of these computations every client does (M,)."""
        nothing = np.zeros(len(self._clients), np.int64)
        done: Ints = np.sum([nothing, *map(self._done_by, works)], axis=0)
        return done

    def _done_by(self, act: ClientWork) -> Bools:
        """Return which clients do the work (M,)."""
        return np.array([act.by is None or client in act.by for client in self._clients])

    def _timed(
        self, probes: Sequence[Probe], series: Mapping[tuple[str, str], Series], taken: Counter[tuple[str, str]]
    ) -> Timed:
        return tuple(self._act(probes, number, act, series, taken) for number, act in enumerate(probes[0].acts))

    def _act(
        self,
        probes: Sequence[Probe],
        number: int,
        act: Act,
        series: Mapping[tuple[str, str], Series],
        taken: Counter[tuple[str, str]],
    ) -> TimedAct:
        def draw(key: tuple[str, str]) -> Draw:
            place = taken[key]
            taken[key] += 1
            return Draw(series[key], place)

        if isinstance(act, InTurn):
            return TimedTurns(self._in_turn([probe.inner(number) for probe in probes], series, taken))
        if isinstance(act, Activated | ServerWaits | ClientsWait | ClientSleep):
            return act
        if isinstance(act, ClientDelay):
            return TimedDelay(draw(_of_delay(act)), act.factor, act.round)
        if isinstance(act, ClientWork):
            steps, flops = act.operation.counts == "update", self._flops(probes, number)
            factors, drawn = self._factors(probes, number), draw(_of_work(act))
            if not isinstance(drawn.series, UnlikeSeries):
                return TimedWork(drawn, factors, steps, flops)
            by, works = self._done_by(act), [each for each in probes[0].acts[:number] if isinstance(each, ClientWork)]
            places = self._works(each for each in works if _of_work(each) == _of_work(act))
            flops = None if flops is None else flops * by
            return TimedWork(UnlikeDraw(drawn.series, drawn.place, places), factors, steps, flops, by)
        if isinstance(act, ServerWork):
            ends, flops = act.operation.counts == "round", self._flops(probes, number, at_server=True)
            return TimedService(draw(_of_work(act)), self._of_server(probes, number), ends, flops, act.ahead)
        sizes = np.array([probe.sizes(number, self._clients) for probe in probes])
        if isinstance(act, ToPeers):
            return TimedToPeers(self._peers.way(draw(_PEERS), sizes))
        rates, round_ = self._rates(upward=isinstance(act, ToServer)), act.message.round
        way = Way(draw(_way(act)), rates, sizes, draw(_messages(act)), round_)
        if isinstance(act, ToServer):
            return TimedSending(draw(_of_upload(act)), way)
        return TimedAnswers(way, act.late, act.busy)

    def _in_turn(
        self, probes: Sequence[Probe], series: Mapping[tuple[str, str], Series], taken: Counter[tuple[str, str]]
    ) -> Timed:
        """Return the acts of every client's turn: the server takes its draws for one client after the other."""
        acts: list[TimedAct] = []
        each, begun = _purposes(probes[0].acts, 1), Counter(taken)
        for number, act in enumerate(probes[0].acts):
            if isinstance(act, ServerWork):
                key = _of_work(act)
                place = begun[key]
                begun[key] += 1
                taken[key] += len(self._clients)
                flops = self._flops(probes, number)
                factors = self._of_server(probes, number, turns=True)
                draw = Draw(series[key], place)
                acts.append(TimedService(draw, factors, ends=False, flops=flops, apart=each[key]))
            else:
                acts.append(self._act(probes, number, act, series, taken))
        return tuple(acts)

    # --- what the times follow from -------------------------------------------------------------------------------

    def _stage(self, key: tuple[str, str]) -> Stage:
        if key not in self._stages:
            self._stages[key] = self._new_stage(*key)
        return self._stages[key]

    def _new_stage(self, what: str, purpose: str) -> Stage:
        setting, timings, seed, clients = self._setting, self._setting.timings, self._seed, self._clients
        if what == "server":
            return delays(seed, [SERVER], [law(timings[SERVER].compute)], purpose)
        if what == "client":
            _, firsts, sorts = self._sorts
            laws = [law(timings[clients[place]].compute) for place in firsts]
            return delays(seed, clients, [laws[sort] for sort in sorts], purpose)
        if what.startswith("messages"):
            return Stage(np.zeros(len(clients)), [])
        if what == "upload":
            return delays(seed, clients, [timings[client].upload_delay for client in clients], purpose)
        if purpose == "peers":
            return self._peers.latencies()
        pairs = [(client, SERVER) if purpose == "up" else (SERVER, client) for client in clients]
        return latencies([timing.link for timing in timings], setting.network.latency, pairs, seed)

    @cached_property
    def _peers(self) -> PeerLinks:
        return PeerLinks(self._setting, self._seed, self._clients)

    @cached_property
    def _sorts(self) -> tuple[list[Any], list[int], list[int]]:
        """Compute models of clients, the place of the first client with each, and every client's sort by it."""
        computes = [self._setting.timings[client].compute for client in self._clients]
        known: dict[int, int] = {}
        firsts: list[int] = []
        sorts = []
        for place, compute in enumerate(computes):
            if id(compute) not in known:
                known[id(compute)] = len(known)
                firsts.append(place)
            sorts.append(known[id(compute)])
        return computes, firsts, sorts

    def _factors(self, probes: Sequence[Probe], number: int) -> Floats:
        """Return the seconds per unit drawn (2, M) of a computation of the clients."""
        operations = [probe.operations(number) for probe in probes]
        key = tuple(id(operation) for each in operations for operation in each.values())
        if key not in self._known_factors:
            computes, _, _ = self._sorts
            alike = probes[0].alike
            firsts, sorts = self._work_sorts(alike)
            rows = [
                np.array([unit_seconds(computes[place], each[alike[place]]) for place in firsts])[sorts]
                for each in operations
            ]
            self._known_factors[key] = np.array(rows), operations  # which keeps the identities
        return self._known_factors[key][0]

    def _work_sorts(self, alike: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the first client of each compute model and sort, and every client's number among these."""
        if self._known_sorts is None:
            known: dict[tuple[int, int], int] = {}
            pairs = zip(self._sorts[0], alike, strict=True)
            sorts = [known.setdefault((id(compute), model), len(known)) for compute, model in pairs]
            _, firsts = np.unique(sorts, return_index=True)
            self._known_sorts = firsts.tolist(), sorts
        return self._known_sorts

    def _of_server(self, probes: Sequence[Probe], number: int, turns: bool = False) -> Floats:
        """Return the seconds per unit drawn of a computation of the server: (2, 1), or in ``turns`` (2, M)."""
        compute = self._setting.timings[SERVER].compute
        rows = []
        for probe in probes:
            operations = probe.operations(number)
            if not turns:
                *_, operation = operations.values()
                rows.append([unit_seconds(compute, operation)])
                continue
            factors = {place: unit_seconds(compute, operation) for place, operation in operations.items()}
            rows.append([factors[place] for place in probe.alike])
        return np.array(rows)

    def _flops(self, probes: Sequence[Probe], number: int, at_server: bool = False) -> Floats | None:
        """Return the operations (2, M) of a computation, or (2, 1) of the server's; None if they have no energy."""
        if not self._counts_flops:
            return None
        rows = []
        for probe in probes:
            flops = {place: operation.flops() for place, operation in probe.operations(number).items()}
            rows.append([[*flops.values()][-1]] if at_server else [flops[place] for place in probe.alike])
        return np.array(rows)

    @cached_property
    def _counts_flops(self) -> bool:
        powers = (self._setting.timings[party].power for party in (SERVER, *self._clients))
        return any(power is not None and power.per_flop > 0 for power in powers)

    def _rates(self, upward: bool) -> Floats:
        """Return the rates of the paths to the server, or from it (M,)."""
        timings = self._setting.timings
        server, links = timings[SERVER].link, [timings[client].link for client in self._clients]
        known = {id(link): link for link in links}  # alike clients share one
        rates = {
            key: rate(link.up, server.down) if upward else rate(server.up, link.down) for key, link in known.items()
        }
        return np.array([rates[id(link)] for link in links])


_PEERS = "latency", "peers"


def _purposes(acts: Acts, clients: int) -> Counter[tuple[str, str]]:
    """Count the draws of each purpose that a party takes in a round."""
    counts: Counter[tuple[str, str]] = Counter()
    for act in acts:
        if isinstance(act, ClientWork | ServerWork):
            counts[_of_work(act)] += 1
        elif isinstance(act, ClientDelay):
            counts[_of_delay(act)] += 1
        elif isinstance(act, ToPeers):
            counts[_PEERS] += 1
        elif isinstance(act, ToServer | ToClients):
            counts[_way(act)] += 1
            counts[_messages(act)] += 1
            if isinstance(act, ToServer):
                counts[_of_upload(act)] += 1
        elif isinstance(act, InTurn):
            for key, count in _purposes(act.acts, 1).items():
                counts[key] += count * (clients if key[0] == "server" else 1)
    return counts


def _of_work(act: ClientWork | ServerWork) -> tuple[str, str]:
    return "client" if isinstance(act, ClientWork) else "server", f"compute.{act.operation.kind}"


def _of_delay(act: ClientDelay) -> tuple[str, str]:
    return "upload", act.purpose


def _of_upload(act: ToServer) -> tuple[str, str]:
    return "upload", "upload" if act.message.embedding else f"upload.{act.message.kind}"


def _way(act: ToServer | ToClients) -> tuple[str, str]:
    return "latency", "up" if isinstance(act, ToServer) else "down"


def _messages(act: ToServer | ToClients) -> tuple[str, str]:
    """Return what numbers the messages of a kind: they draw nothing."""
    return "messages up" if isinstance(act, ToServer) else "messages down", act.message.kind
