"""Turns the acts of sample clients into acts with times for all clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.execution.operations import Operation
from vflsim.recurrences.chunk import Bools
from vflsim.recurrences.sources import PeerLinks, delays, latencies, once_each, rate, unit_seconds
from vflsim.recurrences.stages import Ints, Stage
from vflsim.recurrences.timed_acts import (
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
    bytes_of,
)

Probe: TypeAlias = Mapping[int, Acts]
"""The acts of a round on one batch, by the place of the first client of each sort."""


class Timetable:
    """Knows how many draws of each purpose the acts so far have taken. Acts come in the order of time.

    ``alike`` is the place of the first client of every client's sort: clients of one sort have the same acts.
    """

    def __init__(self, setting: Setting, seed: int, clients: list[int], alike: list[int]) -> None:
        self._setting, self._seed, self._clients, self._alike = setting, seed, clients, alike
        self._stages: dict[tuple[str, str], Stage] = {}
        self._taken: Counter[tuple[str, str]] = Counter()
        self._known_factors: dict[tuple[int, ...], tuple[Floats, object]] = {}

    def timed(self, probes: Sequence[Probe]) -> Timed:
        """Return the acts of a round with their times, from the acts on a batch of each size."""
        acts = _sample(probes[0])
        each = _purposes(acts, len(self._clients))
        series = {key: Series(self._stage(key), count, self._taken[key], key[1]) for key, count in each.items()}
        for key, counts in self._unlike(acts).items():
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
        return np.array([act.by is None or client in act.by for client in self._clients])

    def _timed(
        self, probes: Sequence[Probe], series: Mapping[tuple[str, str], Series], taken: Counter[tuple[str, str]]
    ) -> Timed:
        return tuple(self._act(probes, number, act, series, taken) for number, act in enumerate(_sample(probes[0])))

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
            inner = [{place: cast(InTurn, acts[number]).acts for place, acts in probe.items()} for probe in probes]
            return TimedTurns(self._in_turn(inner, series, taken))
        if isinstance(act, Activated | ServerWaits | ClientsWait | ClientSleep):
            return act
        if isinstance(act, ClientDelay):
            return TimedDelay(draw(_of_delay(act)), act.factor, act.round)
        if isinstance(act, ClientWork):
            steps, flops = act.operation.counts == "update", self._flops(probes, number)
            factors, drawn = self._factors(probes, number), draw(_of_work(act))
            if not isinstance(drawn.series, UnlikeSeries):
                return TimedWork(drawn, factors, steps, flops)
            by, before = self._done_by(act), _sample(probes[0])[:number]
            works = [each for each in before if isinstance(each, ClientWork)]
            places = self._works(each for each in works if _of_work(each) == _of_work(act))
            flops = None if flops is None else flops * by
            return TimedWork(UnlikeDraw(drawn.series, drawn.place, places), factors, steps, flops, by)
        if isinstance(act, ServerWork):
            ends, flops = act.operation.counts == "round", self._flops(probes, number, at_server=True)
            return TimedService(draw(_of_work(act)), self._of_server(probes, number), ends, flops, act.ahead)
        codec, clients = self._setting.codec, self._clients
        sizes = self._facts(probes, number, lambda place, act: bytes_of(act, codec, clients[place]))
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
        each, begun = _purposes(_sample(probes[0]), 1), Counter(taken)
        for number, act in enumerate(_sample(probes[0])):
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
        if what.endswith("by a table"):
            return Stage(np.ones(1 if what.startswith("server") else len(clients)), [])
        if what == "server":
            return delays(seed, [SERVER], [law(timings[SERVER].compute)], purpose)
        if what == "client":
            return delays(seed, clients, once_each(law, self._computes), purpose)
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
    def _computes(self) -> list[Any]:
        return [self._setting.timings[client].compute for client in self._clients]

    @cached_property
    def _sorts(self) -> tuple[list[int], list[int]]:
        """The first client of each compute model and sort, and every client's number among these."""
        known: dict[tuple[int, int], int] = {}
        pairs = zip(self._computes, self._alike, strict=True)
        sorts = [known.setdefault((id(compute), sort), len(known)) for compute, sort in pairs]
        _, firsts = np.unique(sorts, return_index=True)
        return firsts.tolist(), sorts

    def _factors(self, probes: Sequence[Probe], number: int) -> Floats:
        """Return the seconds per unit drawn (2, M) of a computation of the clients."""
        operations = [_operations(probe, number) for probe in probes]
        key = tuple(id(operation) for each in operations for operation in each.values())
        if key not in self._known_factors:
            computes, alike, (firsts, sorts) = self._computes, self._alike, self._sorts
            rows = [
                np.array([unit_seconds(computes[place], each[alike[place]]) for place in firsts])[sorts]
                for each in operations
            ]
            self._known_factors[key] = np.array(rows), operations  # which keeps the identities
        return self._known_factors[key][0]

    def _of_server(self, probes: Sequence[Probe], number: int, turns: bool = False) -> Floats:
        """Return the seconds per unit drawn of a computation of the server: (2, 1), or in ``turns`` (2, M)."""
        compute = self._setting.timings[SERVER].compute
        return self._facts(probes, number, lambda _, act: unit_seconds(compute, act.operation), not turns)

    def _flops(self, probes: Sequence[Probe], number: int, at_server: bool = False) -> Floats | None:
        """Return the operations (2, M) of a computation, or (2, 1) of the server's; None if they have no energy."""
        if not self._counts_flops:
            return None
        return self._facts(probes, number, lambda _, act: act.operation.flops(), at_server)

    def _facts(
        self, probes: Sequence[Probe], number: int, fact: Callable[[int, Any], Any], alone: bool = False
    ) -> NDArray[Any]:
        """Return a fact of an act of the client at a place (kinds, M), or (kinds, 1) of one ``alone``."""
        if alone:
            return np.array([[fact(0, _sample(probe)[number])] for probe in probes])
        rows = ({place: fact(place, acts[number]) for place, acts in probe.items()} for probe in probes)
        return np.array([[row[place] for place in self._alike] for row in rows])

    @cached_property
    def _counts_flops(self) -> bool:
        powers = (self._setting.timings[party].power for party in (SERVER, *self._clients))
        return any(power is not None and power.per_flop > 0 for power in powers)

    def _rates(self, upward: bool) -> Floats:
        timings = self._setting.timings
        server, links = timings[SERVER].link, [timings[client].link for client in self._clients]
        way = (lambda link: rate(link.up, server.down)) if upward else (lambda link: rate(server.up, link.down))
        return np.array(once_each(way, links))


_PEERS = "latency", "peers"


def _sample(probe: Probe) -> Acts:
    *_, acts = probe.values()
    return acts


def _operations(probe: Probe, number: int) -> dict[int, Operation[Any]]:
    return {place: cast(ClientWork | ServerWork, acts[number]).operation for place, acts in probe.items()}


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
                counts[key] += count * (clients if key[0].startswith("server") else 1)
    return counts


def _of_work(act: ClientWork | ServerWork) -> tuple[str, str]:
    who = "client" if isinstance(act, ClientWork) else "server"
    fixed = "" if act.operation.seconds is None else " by a table"
    return who + fixed, f"compute.{act.operation.kind}"


def _of_delay(act: ClientDelay) -> tuple[str, str]:
    return "upload", act.purpose


def _of_upload(act: ToServer) -> tuple[str, str]:
    return "upload", "upload" if act.message.embedding else f"upload.{act.message.kind}"


def _way(act: ToServer | ToClients) -> tuple[str, str]:
    return "latency", "up" if isinstance(act, ToServer) else "down"


def _messages(act: ToServer | ToClients) -> tuple[str, str]:
    """Return what numbers the messages of a kind: they draw nothing."""
    return "messages up" if isinstance(act, ToServer) else "messages down", act.message.kind
