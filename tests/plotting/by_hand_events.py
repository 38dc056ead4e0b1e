"""The numbers of figures of events once more, from the Parquet files: slowly, row by row, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pandas as pd
from by_hand import runs, table

from vflsim.plotting.breakdown import BARRIER, PARTS, SERVER_STEP, TO_DEADLINE, WAITING
from vflsim.results import Results

PART_OF = {activity: part for part, (names, _) in PARTS.items() for activity in names}


def covered(spans: Iterable[tuple[float, float]], low: float, high: float) -> float:
    """Seconds between ``low`` and ``high`` that at least one of the spans covers."""
    total, reach = 0.0, low
    for start, end in sorted(spans):
        start, end = max(start, reach), min(end, high)
        if end > start:
            total, reach = total + end - start, end
    return total


def moved_from(events: list[dict], message: dict) -> float:
    """When the latency of a message was over; without one, when it was sent."""
    ends = [
        event["end_s"]
        for event in events
        if event["kind"].startswith("latency.")
        and (event["party"], event["peer"], event["start_s"]) == (message["party"], message["peer"], message["sent_s"])
        and event["outcome"] == "done"
    ]
    return ends[0] if ends else message["sent_s"]


def follow(events: list[dict], row: dict, ready: float, first: int, client: str | None) -> tuple[dict, dict, list[set]]:
    """Seconds by activity of one round up to ``ready``, those before barriers, and who was waited for before.

    ``events`` are in the order of their ends.

    ``first`` is the place of the last message, sent by ``client``.
    """
    begun, seconds, early, before = row["start_s"], defaultdict(float), defaultdict(float), []
    outages = defaultdict(list)
    for event in events:
        if event["kind"] == "outage":
            outages[event["party"]].append((event["start_s"], event["end_s"]))

    def spend(what: str, low: float, high: float, *parties: str) -> None:
        low = max(low, begun)
        if high > low:
            out = covered([span for party in parties for span in outages[party]], low, high)
            for each in (seconds, early) if before else (seconds,):
                each[what] += high - low - out
                each["outage"] += out

    if client is None:
        spend("deadline", begun, ready, "server")
        return seconds, early, before
    place, party, now, computing = first, "server", ready, None
    message = events[first]
    while True:
        if message is not None:
            sender, sent = message["party"], message["sent_s"]
            moved = moved_from(events, message)
            spend("transfer", message["start_s"], message["end_s"], sender, message["peer"])
            spend("queue", moved, message["start_s"], sender)
            spend("latency", sent, moved, sender)
            party, now = sender, sent
        if now <= begun:
            break
        came = work = None
        for at in range(place - 1, -1, -1):
            event = events[at]
            if event["end_s"] > now:
                continue
            what = event["kind"].partition(".")[0]
            if work is None and event["party"] == party and what not in ("transfer", "latency"):
                work = at if event["outcome"] != "abandoned" else None
            if came is None and what == "transfer" and event["peer"] == party and event["outcome"] == "done":
                came = at if event["kind"] != "transfer.evaluation" else None
            if work is not None and came is not None:
                break
        ends = [events[at]["end_s"] if at is not None else -np.inf for at in (work, came)]
        spend("idle", max(ends), now, party)
        if max(ends) <= begun:
            break
        if ends[0] >= ends[1]:
            place, message = work, None
            event = events[place]
            what = event["kind"].partition(".")[0]
            spend(what, event["start_s"], event["end_s"], party)
            if what == "compute" and party == client and computing is None and not before:
                computing = event["start_s"]
            now = event["start_s"]
            if now <= begun:
                break
        else:
            place, message = came, events[came]
            if message["party"] != "server":
                before.append(
                    {e["party"] for e in events[: came + 1]
                     if e["kind"].startswith("transfer.") and e["peer"] == party and e["outcome"] == "done"
                     and e["party"] != "server" and e["end_s"] == message["end_s"]}
                )  # fmt: skip
    if not before and computing is not None:
        heard = [e for e in events if e["kind"].startswith("transfer.") and e["peer"] == client
                 and e["party"] != "server" and e["outcome"] == "done" and begun < e["end_s"] <= computing]  # fmt: skip
        if heard:
            before.append({client})
    return seconds, early, before


def followed(run) -> list[tuple[tuple[dict, dict], set, list[set]]]:
    """(seconds by activity and of the server, and before barriers; who was waited for, and before) of every round."""
    events = sorted(table(run, "events"), key=lambda event: event["end_s"])  # stable
    steps = [e for e in events if e["kind"] == "compute.server_step" and e["outcome"] == "done"]
    found = []
    for row, step in zip(table(run, "rounds"), steps, strict=True):
        ready = step["start_s"]
        while True:
            last = [
                (at, event)
                for at, event in enumerate(events)
                if event["kind"].startswith("transfer.")
                and event["outcome"] == "done"
                and event["peer"] == "server"
                and event["end_s"] == ready
                and (int(event["party"][7:]) in row["used"] or event["kind"] == "transfer.answer")
            ]
            longer = [e["start_s"] for e in events if e["party"] == "server" and e["kind"].startswith("compute.")
                      and e["end_s"] == ready and row["start_s"] <= e["start_s"] < ready]  # fmt: skip
            if last or not longer:
                break
            ready = longer[0]
        clients = {int(event["party"][7:]) for _, event in last}
        at, event = max(last, key=lambda pair: (int(pair[1]["party"][7:]), pair[0])) if last else (-1, {"party": None})
        seconds, early, before = follow(events, row, ready, at, event["party"])
        seconds["server"] = row["end_s"] - ready
        found.append(((seconds, early), clients, [{int(name[7:]) for name in each} for each in before]))
    return found


def waited(results: Results) -> dict[str, pd.DataFrame]:
    rows = []
    for protocol, own in runs(results, "rounds", "events").items():
        rounds = [each for run in own for each in followed(run)]
        clients = sorted({m for run in own for m in run.info.participants})
        spent = [(seconds["deadline"] + seconds["outage"], early) for (seconds, early), _, _ in rounds]
        stages = {"last": [[found] if found else [] for _, found, _ in rounds]}
        stages["before"] = [before for _, _, before in rounds]
        if not any(stages["last"]):
            continue
        for stage, named in stages.items():
            if stage == "last" or any(named):
                shares = dict.fromkeys(clients, 0.0)
                for each in named:
                    for together in each:
                        for client in together:
                            shares[client] += 1 / len(together) / len(named)
                late = [not each and waits > 0 for each, (waits, _) in zip(named, spent, strict=True)]
                if stage == "last":
                    shares[-1] = sum(late) / len(named)
                shares[0] = (sum(not each for each in named) - (sum(late) if stage == "last" else 0)) / len(named)
                rows += [(protocol, stage, client, share) for client, share in shares.items()]
    return {"shares": pd.DataFrame(rows, columns=["protocol", "stage", "client", "share"])}


def breakdown(results: Results) -> dict[str, pd.DataFrame]:
    names = [*PARTS, SERVER_STEP, TO_DEADLINE, BARRIER, WAITING]
    part_of = PART_OF | {"server": SERVER_STEP, "deadline": TO_DEADLINE}
    paths, clients = [], []
    for protocol, own in runs(results, "rounds", "events").items():
        rounds = [seconds for run in own for seconds, _, _ in followed(run)]
        parts, early = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        for both in rounds:
            for sums, seconds in zip((parts, early), both, strict=True):
                for what, value in seconds.items():
                    sums[part_of.get(what, WAITING)] += value / len(rounds)
        paths += [(protocol, part, value, value / sum(parts.values()), early[part]) for part, value in parts.items()]
        shares = dict.fromkeys(names, 0.0)
        for run in own:
            end = table(run, "metrics")[-1]["time_s"]
            events = table(run, "events")
            for m in run.info.participants:
                spans, before = [], 0.0
                its = [e for e in events if (e["peer"] if e["party"] == "server" else e["party"]) == f"client-{m}"]
                for part, (activities, _) in PARTS.items():
                    spans += [(e["start_s"], e["end_s"]) for e in its if e["kind"].partition(".")[0] in activities]
                    if activities == ("queue",):
                        spans += [
                            (moved_from(events, e), e["start_s"]) for e in its if e["kind"].startswith("transfer.")
                        ]
                    now = covered(spans, 0.0, end)
                    shares[part] += (now - before) / end / len(run.info.participants) / len(own)
                    before = now
                reach = 0.0
                for low, high in [*sorted(span for span in spans if span[1] > span[0]), (end, end)]:
                    if low > reach and any(
                        e["kind"].startswith("transfer.") and e["peer"] == f"client-{m}" and e["party"] != "server"
                        and e["outcome"] == "done" and e["end_s"] == low for e in events
                    ):  # fmt: skip
                        shares[BARRIER] += (low - reach) / end / len(run.info.participants) / len(own)
                    reach = max(reach, high)
        shares[WAITING] = 1 - sum(shares.values())
        clients += [(protocol, part, share) for part, share in shares.items()]
    return {
        "rounds": pd.DataFrame(paths, columns=["protocol", "part", "seconds", "share", "before"]),
        "clients": pd.DataFrame(clients, columns=["protocol", "part", "share"]),
        "links": pd.DataFrame(lost(results), columns=["protocol", "link", "client", "messages", "seconds"]),
    }


def lost(results: Results) -> list[tuple[str, str, int, int, float]]:
    """How long messages take longer than alone on their path, but for outages of their parties."""
    found = []
    for protocol, own in runs(results, "rounds", "events").items():
        waits: dict[tuple[str, int], list[float]] = defaultdict(list)
        for run in own:
            events, network = table(run, "events"), run.info.network
            out = defaultdict(list)
            for event in (e for e in events if e["kind"] == "outage"):
                out[event["party"]].append((event["start_s"], event["end_s"]))
            for e in (e for e in events if e["kind"].startswith("transfer.") and e["outcome"] == "done"):
                numbers = [0 if p == "server" else int(p.removeprefix("client-")) for p in (e["party"], e["peer"])]
                rates = [
                    next((rate for first, last, rate in known if first <= number <= last), np.inf)
                    for known, number in zip((network.up, network.down), numbers, strict=True)
                ]
                began = moved_from(events, e)
                away = covered([*out[e["party"]], *out[e["peer"]]], began, e["end_s"])
                links = {0: "the server's up-link"} if not numbers[0] else {1: "the server's down-link"}
                link = "clients' links" if all(numbers) else next(iter(links.values()))
                seconds = e["end_s"] - began - away - 8 * e["bytes"] / min(rates)
                waits[link, numbers[0] or numbers[1]].append(seconds if seconds > 1e-9 * e["end_s"] else 0.0)
        found += [(protocol, link, client, len(each), sum(each)) for (link, client), each in waits.items()]
    return found


def utilisation(results: Results, bins: int = 100) -> dict[str, pd.DataFrame]:
    rows = []
    for run in (each for each in results.runs if each.seed == results.seeds[0]):
        events, end = table(run, "events"), table(run, "metrics")[-1]["time_s"]
        moving = [e for e in events if e["kind"].startswith("transfer.") and e["bytes"] and e["end_s"] > e["start_s"]]
        if not moving:
            continue
        out = defaultdict(list)
        for event in (e for e in events if e["kind"] == "outage"):
            out[event["party"]].append((event["start_s"], event["end_s"]))
        edges = np.linspace(0, end, bins + 1)
        clients = [f"client-{m}" for m in run.info.participants]

        def busy(parties: list[str], side: str, edges=edges, moving=moving, out=out) -> list[float]:
            shares = []
            for low, high in pairwise(edges):
                seconds = 0.0
                for party in parties:
                    own = [e for e in moving if e[side] == party]
                    cuts = {low, high} | {t for e in own for t in (e["start_s"], e["end_s"])}
                    cuts |= {t for spans in out.values() for span in spans for t in span}
                    for a, b in pairwise(sorted(t for t in cuts if low <= t <= high)):
                        seconds += (b - a) * any(
                            e["start_s"] <= a and b <= e["end_s"]
                            and not any(s <= a and b <= t for p in (e["party"], e["peer"]) for s, t in out[p])
                            for e in own
                        )  # fmt: skip
                shares.append(seconds / len(parties) / (high - low))
            return shares

        links = {"server up": busy(["server"], "party"), "server down": busy(["server"], "peer")}
        links |= {"clients up (mean)": busy(clients, "party"), "clients down (mean)": busy(clients, "peer")}
        if any(out.values()):
            everybody = ["server", *clients]
            links["out"] = [
                sum(covered(out[p], low, high) for p in everybody) / len(everybody) / (high - low)
                for low, high in pairwise(edges)
            ]
        for link, shares in links.items():
            rows += [(run.protocol, run.seed, link, *span, s) for span, s in zip(pairwise(edges), shares, strict=True)]
    return {"links": pd.DataFrame(rows, columns=["protocol", "seed", "link", "start_s", "end_s", "share"])}


LABELS = {
    "compute": "compute",
    "activation": "waits for activation",
    "upload": "upload delay",
    "share": "sharing delay",
    "latency": "latency",
    "transfer": "transfer",
    "aside": "stands aside",
    "outage": "out",
}


def timeline(results: Results) -> dict[str, pd.DataFrame]:
    own = [run for run in results.runs if run.seed == results.seeds[0]]
    ends = {run.protocol: [row["end_s"] for row in table(run, "rounds")] for run in own}
    end = max(each[min(2, len(each)) - 1] for each in ends.values() if each)
    rows, steps = [], []
    for run in own:
        for event in table(run, "events"):
            if event["start_s"] < end and event["end_s"] > 0:
                what = event["kind"].partition(".")[0]
                own_run = {"protocol": run.protocol, "seed": run.seed}
                cuts = {event["start_s"], event["end_s"]}
                out = [e for e in table(run, "events") if e["kind"] == "outage" and what == "transfer"]
                out = [(e["start_s"], e["end_s"]) for e in out if e["party"] in (event["party"], event["peer"])]
                cuts |= {t for span in out for t in span if event["start_s"] < t < event["end_s"]}
                for low, high in [*pairwise(sorted(cuts))] or [(event["start_s"], event["end_s"])]:
                    aside = any(start <= low and high <= end_ and low < high for start, end_ in out)
                    named = "aside" if aside else what
                    part = {"start_s": low, "end_s": high, "activity": named, "label": LABELS[named]}
                    last = {} if high == event["end_s"] else {"outcome": "done"}
                    rows.append({**own_run, **event, **part, **({} if aside else last)})
        shown = [at for at in ends[run.protocol] if at <= end]
        steps += [(run.protocol, run.seed, at) for at in shown] if len(shown) <= 40 else []
    return {
        "activities": pd.DataFrame(rows),
        "steps": pd.DataFrame(steps, columns=["protocol", "seed", "time_s"]),
    }
