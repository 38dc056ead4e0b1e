"""Scenarios whose times mix atoms and densities, for every protocol, and what closed forms of them must keep to.

Run by ``tests/runner/test_generated_closed_forms.py``.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from drawn_rounds import RUNS, Rounds, coded, half_width, own_pace, starting_afresh
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tiny_worlds import data_of, raw

from vflsim.protocols import PROTOCOLS
from vflsim.runner.analysis import analyse, closed_forms
from vflsim.runner.build import Data
from vflsim.runner.coded_rounds import BARRIER
from vflsim.runner.coded_stages import CodedStages
from vflsim.runner.cycles import Cycles
from vflsim.runner.findings import rows
from vflsim.runner.rounds import AGE, ROUND
from vflsim.runner.run import run_protocol
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.timing.analysis import ClosedForm, Finding, NoClosedForm
from vflsim.timing.delays import DELAYS

ATOMS = (0, 0.1, 0.2, 0.25, 0.5, 1.0)
"""Few values, so that several clients often have the same ones."""
MEANS = (0.05, 0.2, 1.0)
KINDS = tuple(protocol.model_fields["kind"].default for protocol in PROTOCOLS)
LAWS = tuple(delay.model_fields["kind"].default for delay in DELAYS)
_OBSERVED = {
    "one": [0.3],
    "repeated": [0.1, 0.1, 0.5],
    "from zero": [0.0, 0.0, 0.2, 1.0],
    "a grid": [k / 20 for k in range(20)],
    "spread": np.random.default_rng(0).exponential(0.3, 30).tolist(),
}

Delay = dict[str, Any]


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="vflsim-closed-forms-"))
    for name, values in _OBSERVED.items():
        np.save(folder / f"{name}.npy", np.array(values, dtype=np.float64))
    return folder


def _plain() -> dict[str, st.SearchStrategy[Delay]]:
    """Every kind that is not made of others."""
    atom, mean = st.sampled_from(ATOMS), st.sampled_from(MEANS)

    def of(kind: str, **keys: Any) -> st.SearchStrategy[Delay]:
        return st.fixed_dictionaries({"kind": st.just(kind), **keys})

    shape = st.sampled_from([0.5, 1.0, 3.0])
    return {
        "constant": of("constant", value=atom),
        "exponential": of("exponential", mean=mean),
        "shifted_exponential": of("shifted_exponential", shift=atom, mean=mean),
        "uniform": st.tuples(atom, st.sampled_from([0.1, 0.5])).map(
            lambda pair: {"kind": "uniform", "low": pair[0], "high": pair[0] + pair[1]}
        ),
        "normal": of("normal", mean=atom, sd=st.sampled_from([0.01, 0.3])),
        "lognormal": of("lognormal", sigma=st.sampled_from([0.2, 1.0]), median=mean),
        "gamma": of("gamma", shape=shape, mean=mean),
        "weibull": of("weibull", shape=st.sampled_from([0.7, 3.0]), mean=mean),
        "pareto": of("pareto", shape=st.sampled_from([1.5, 2.5, 6.0]), minimum=mean),
        "hyper_exponential": of("hyper_exponential", probabilities=st.just([0.8, 0.2]), means=st.just([0.05, 1.0])),
        "empirical": of(
            "empirical",
            file=st.sampled_from(list(_OBSERVED)).map(lambda name: str(_folder() / f"{name}.npy")),
            interpolation=st.sampled_from(["none", "linear"]),
        ),
    }


@st.composite
def delays(draw: st.DrawFn, depth: int = 2, kind: str | None = None) -> Delay:
    """A kind of delay, or any but bursts; mixtures, sums and maxima of any."""
    plain = _plain()
    kinds = [*plain, "constant", *(("mixture", "mixture", "mixture", "sum", "maximum") if depth else ())]
    kind = kind or draw(st.sampled_from(kinds))
    if kind in plain:
        return draw(plain[kind])
    if kind == "markov_modulated":
        return _bursts([draw(delays(depth - 1)), draw(delays(depth - 1))])
    parts = draw(st.lists(delays(depth - 1), min_size=1, max_size=3))
    made: Delay = {"kind": kind, "parts": parts}
    if kind == "mixture":
        weight = st.sampled_from([1, 2, 5, 0])
        made["weights"] = draw(st.tuples(*[weight] * len(parts)).filter(any))
    return made


def _bursts(parts: list[Any]) -> Delay:
    return {"kind": "markov_modulated", "states": [{"sojourn": 1, "delay": part} for part in parts]}


@st.composite
def protocols(draw: st.DrawFn, kind: str, clients: int) -> dict[str, Any]:
    """A protocol of a kind, with its options."""
    made: dict[str, Any] = {"kind": kind}
    if kind == "ignore":
        made |= draw(st.sampled_from([{"exclude": "1"}, {"fastest": clients}, {"fastest": 1}, {"deadline": 0.9}]))
        if clients == 1:
            made = {"kind": kind, "deadline": 0.9}
    if kind == "t_synchronous":
        made |= {"t": draw(st.integers(1, clients)), "cancel": draw(st.booleans())}
    if kind == "fedvs":
        most = (clients - 1) // 2 + 1  # of K + T
        segments = draw(st.sampled_from([k for k in (1, 2) if k <= most - 1]))
        made |= {"K": segments, "T": draw(st.integers(1, most - segments))}
        made["late"] = draw(st.sampled_from(["abandoned", "finished"]))
        made["share_delay_factor"] = draw(st.sampled_from([None, 0, 0.5, 1]))
        made |= draw(st.sampled_from([{}, {}, {}, {"sharers": clients}, {"deadline": 50, "too_few": "skip"}]))
        if made["share_delay_factor"] is None:
            del made["share_delay_factor"]
    return made


@st.composite
def worlds(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """A scenario with one protocol ``it`` of a kind, as a mapping."""
    clients = draw(st.integers(3, 6) if kind == "fedvs" else st.integers(1, 5))
    pool = draw(st.lists(delays(), min_size=1, max_size=3))
    any_of = st.sampled_from([0, 0.1, *pool, *pool])
    alike = st.sampled_from([0, 0, 0, 0.1, pool[0]])
    bandwidth = draw(st.sampled_from([{}, {}, {"up": "1 Mbps", "down": "2 Mbps"}]))
    entries: list[dict[str, Any]] = [
        {
            "select": "all",
            "compute": draw(alike),
            "upload_delay": draw(any_of),
            "link": {"latency": draw(alike), **bandwidth},
            "activation": draw(
                st.sampled_from(["immediate", "immediate", "immediate", {"kind": "poisson", "rate": "2 /s"}])
            ),
        }
    ]
    for client in range(1, clients + 1):
        if draw(st.booleans()):
            entries.append({"select": str(client), "upload_delay": draw(any_of)})
        if draw(st.integers(0, 4)) == 4:
            entries.append({"select": str(client), "compute": draw(any_of)})
    if draw(st.integers(0, 19)) == 19:
        entries.append({"select": "1", "upload_delay": _bursts([*pool, 0.1])})
    return raw(
        {"it": draw(protocols(kind, clients))},
        timing={
            "network": draw(st.sampled_from(["dedicated", "dedicated", "fifo", "fair"])),
            "server": {"compute": draw(st.sampled_from([0, 0, 0.1, pool[0], {"kind": "exponential", "mean": 0.2}]))},
            "clients": entries,
        },
        partition={"clients": clients, "by": "columns"},
        training__last_batch=draw(st.sampled_from(["drop", "drop", "keep"])),
        record="rounds",
    )


# --- what closed forms must keep to -----------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a scenario's closed forms were, and all that is wrong with them."""

    forms: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def seen(said: dict[str, Any], count: int = 400, again: int = 8, steps: int = 0) -> Seen:
    """The findings of a world, computed, printed, and held against ``count`` drawn rounds in each of 20 runs.

    What lies outside of its 99.9 % interval is held against ``again`` times as many rounds of another seed, and is
    wrong if it lies outside of that interval, too. ``steps``: also against so many rounds of the simulation itself.
    """
    world, result = load(said), Seen()
    data = data_of(world)
    findings = []
    for _, finding in rows("it", analyse(world, "it", data).findings):
        findings.append(finding)
        result.forms[finding.exactness if isinstance(finding, ClosedForm) else "none"] += 1
        if isinstance(finding, NoClosedForm):
            if finding.failed:
                result.wrong.append(str(finding))
        else:
            for formula in finding.formulas():
                assert " = " in formula.text
                assert " = " in formula.latex
            result.wrong += _misshapen(finding)
    for left_out in closed_forms(world, Data(world)).left_out:
        if left_out.failed:
            result.wrong.append(f"curves: {left_out}")
    known = {name: [each for each in findings if isinstance(each, ClosedForm) and each.name == name] for name in NAMES}
    own = own_paced(world)
    makers = [(_drawn(world, findings), "drawn", 2 * count if own else count)]
    if steps and all(form.mean.low > 0 for form in known[ROUND]):
        makers.append((_simulated, "simulated", steps))
    for make, how, many in makers:
        first = _off(world, known, make, many, seed=1) if make else None
        if first is None:
            continue
        result.checks[how] += first.checks
        result.checks[f"{how}, outside at first"] += len(first.off)
        if first.off:
            second = _off(world, known, make, again * many, seed=2)
            assert second is not None
            result.wrong += [f"{how}: {text}" for what, text in second.off.items() if what in first.off]
    return result


NAMES = (ROUND, BARRIER, "server steps per second", AGE, "steps from one of its own to the next")
_LEVELS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
_SLACK = 1e-6
_RARE = 1e-4
Make = Callable[[Scenario, int, int], Rounds | None]


def _misshapen(form: ClosedForm) -> list[str]:
    """What is wrong with a form whatever the rounds are: no distribution, or bounds that are none."""
    wrong = []
    if not 0 <= form.mean.low <= form.mean.high * (1 + 1e-9) + 1e-12:
        wrong.append(f"{form.name}: a mean from {form.mean.low} to {form.mean.high}")
    if form.law is None:
        return wrong
    x = form.law.quantile(np.linspace(0.02, 0.98, 25))
    fast, slow = form.law.cdf(x), (form.slower or form.law).cdf(x)
    if not (np.all(np.diff(fast) >= -1e-9) and np.all(slow <= fast + 1e-7) and np.all((fast >= 0) & (fast <= 1))):
        wrong.append(f"{form.name}: no distribution function, or bounds the wrong way round")
    if not np.all(fast >= np.linspace(0.02, 0.98, 25) - 1e-9):
        wrong.append(f"{form.name}: quantiles {x} have less than their probability")
    return wrong


@dataclass
class Off:
    """How many things were compared, and what lay outside of its interval."""

    checks: int = 0
    loose: float = 0.0
    off: dict[str, str] = field(default_factory=dict)

    def within(self, what: str, value: float, low: float, high: float, margin: float) -> None:
        self.checks += 1
        margin += self.loose * abs(value)
        if not low - margin <= value <= high + margin:
            self.off[what] = f"{what}: {value:.6g} ± {margin:.2g} in place of {low:.6g} … {high:.6g}"


def _off(world: Scenario, known: dict[str, list[ClosedForm]], make: Make, count: int, seed: int) -> Off | None:
    """What closed forms and rounds do not agree on; None without rounds."""
    rounds = make(world, count, seed)
    if rounds is None:
        return None
    # A whole step more or less of each client, at the ends of a run.
    found = Off(loose=world.clients / rounds.seconds.shape[-1] if own_paced(world) else 0.0)
    # One run may not have been long enough for what holds in the long run of many.
    settled = make is not _simulated or not own_paced(world)
    heavy = _heavy(world.document.raw["timing"])
    for name, values in ((ROUND, rounds.seconds), (BARRIER, rounds.barrier)):
        for form in known[name] if values is not None else ():
            _compare(found, form, values, heavy, settled)
    for form in known["server steps per second"] if not heavy else ():
        seconds, margin = float(rounds.seconds.mean()), half_width(rounds.seconds) + _SLACK
        found.within(form.name, seconds, 1 / form.mean.high, 1 / form.mean.low, margin)
    if rounds.used is not None and settled:
        for name in (AGE, "steps from one of its own to the next"):
            for form, client in ((each, client) for each in known[name] for client in each.clients):
                share = rounds.used[..., participants(world).index(client)].astype(np.float64)
                expected = 1 / (form.mean.low + (name == AGE))
                found.within(f"{name} of {client}", share.mean(), expected, expected, half_width(share) + _RARE)
    return found


def _compare(found: Off, form: ClosedForm, values: np.ndarray, heavy: bool, settled: bool) -> None:
    """Mean, shares up to quantiles, and ends of the support."""
    if not heavy:
        margin = half_width(values) + _SLACK * (1 + abs(form.mean.low)) + form.error
        found.within(f"mean {form.name}", float(values.mean()), form.mean.low, form.mean.high, margin)
    if form.law is None or not settled:
        return
    slower = form.slower or form.law
    for number, x in enumerate(np.unique(form.law.quantile(_LEVELS))):
        here = 1e-9 * (1 + x)
        for side, below in (("<", values < x - here), ("<=", values <= x + here)):
            share = below.astype(np.float64)
            low, high = (0.0, float(form.law.cdf(x))) if side == "<" else (float(slower.cdf(x)), 1.0)
            what = f"P({form.name} {side} {number}: {x:.6g})"
            found.within(what, share.mean(), low, high, half_width(share) + _RARE)
    (low, _), (_, high) = form.law.support, slower.support
    found.within(f"support of {form.name}", float(values.min()), low, high, 1e-9 * (1 + low))
    found.within(f"support of {form.name}", float(values.max()), low, high, 1e-9 * (1 + low))


def _heavy(said: Any) -> bool:
    """Whether there is a power-law tail of so few moments that a mean has no interval by Student."""
    if isinstance(said, dict):
        return (said.get("kind") == "pareto" and said["shape"] < 5) or any(map(_heavy, said.values()))
    return isinstance(said, list | tuple) and any(map(_heavy, said))


def participants(world: Scenario) -> list[int]:
    return world.protocols["it"].protocol.participants(world.clients, world.symbols)


def own_paced(world: Scenario) -> bool:
    """Whether clients go on at their own pace."""
    protocol = world.protocols["it"].protocol
    cancelled = protocol.kind == "t_synchronous" and (protocol.cancel or protocol.t == world.clients)
    return protocol.kind in ("asynchronous", "t_synchronous") and not cancelled


def _drawn(world: Scenario, findings: list[Finding]) -> Make | None:
    """How to draw rounds of a world from its stages, None where messages wait for links or late work is not known."""
    round_ = findings[0]
    if not isinstance(round_, ClosedForm):
        return None
    protocol, data = world.protocols["it"].protocol, data_of(world)
    if protocol.kind == "fedvs":
        if round_.exactness == "bounds":
            return None
        return lambda world, count, seed: coded(CodedStages(world, "it", data), count, np.random.default_rng(seed))
    cycles = Cycles(world, "it", data)
    many = len(cycles.clients)
    if any(any(cycles.longest_waits(turn)) for turn in cycles.turns) and protocol.kind != "centralised":
        return None
    t = getattr(protocol, "t", 1 if protocol.kind == "asynchronous" else many)
    if own_paced(world):
        return lambda world, count, seed: own_pace(cycles, t, count, np.random.default_rng(seed))
    if t < many and cycles.cycles(cycles.turns[0]) != cycles.cycles(cycles.turns[0], used=False):
        return None
    idle = protocol.kind == "centralised"
    return lambda world, count, seed: starting_afresh(cycles, 0 if idle else t, count, np.random.default_rng(seed))


def _simulated(world: Scenario, count: int, seed: int) -> Rounds | None:
    """Rounds of the simulation, one run in 20 pieces after a fifth of warm-up; None where it ends in an error."""
    stop = world.stop.model_copy(update={"rounds": count + count // 5, "time": None})
    outcome = run_protocol(world.model_copy(update={"stop": stop}), "it", seed, data_of(world), timing_only=True)
    if outcome.error is not None:
        return None
    rounds = outcome.tables.rounds.to_pandas().iloc[count // 5 :][: count // RUNS * RUNS]
    seconds = (rounds["end_s"] - rounds["start_s"]).to_numpy().reshape(RUNS, -1)
    used = np.array([[client in each for client in participants(world)] for each in rounds["used"]])
    return Rounds(seconds, used.reshape(*seconds.shape, -1))


def main() -> None:
    """``python tests/closed_form_worlds.py [COUNT] [KIND …]``: COUNT (2000) scenarios, and all that is wrong."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    kinds = sys.argv[2:] or list(KINDS)
    sys.exit(bool(sum(_many(kind, -(-count // len(kinds))) for kind in kinds)))


def _many(kind: str, count: int) -> int:
    """Print all that is wrong with so many scenarios of a kind of protocol, and how many things that are."""
    done, total, begun = 0, Seen(), time.process_time()

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(worlds(kind))
    def one(said: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        try:
            found = seen(said, steps=200 if done % 10 == 0 else 0)
        except Exception as error:
            origin = traceback.extract_tb(error.__traceback__)[-1]
            found = Seen(wrong=[f"{type(error).__name__}: {error} ({Path(origin.filename).name}:{origin.lineno})"])
        total.forms.update(found.forms)
        total.checks.update(found.checks)
        total.wrong += found.wrong
        for text in found.wrong:
            print(f"{kind}: {text}\n    {said['timing']} {said['protocols']} {said['partition']}", flush=True)

    one()
    seconds = time.process_time() - begun
    print(f"{kind}: {done} scenarios in {seconds:.0f} s: {dict(total.forms)}, {dict(total.checks)}", flush=True)
    print(f"{kind}: {len(total.wrong)} things are wrong", flush=True)
    return len(total.wrong)


if __name__ == "__main__":
    main()
