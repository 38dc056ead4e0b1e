"""What closed forms must keep to: they can be computed and printed, and agree with rounds that are drawn or simulated.

Run by ``tests/analysis/test_generated_closed_forms.py``; ``python tests/support/closed_form_checks.py`` checks 2,000
scenarios.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from closed_form_worlds import KINDS, worlds
from drawn_rounds import RUNS, Rounds, coded, half_width, own_pace, starting_afresh
from hypothesis import HealthCheck, Phase, given, settings
from tiny_worlds import coded_stages_of, data_of

from vflsim.analysis.cycles import Cycles
from vflsim.analysis.findings import ClosedForm, Finding, NoClosedForm
from vflsim.analysis.rounds import AGE, ROUND
from vflsim.cli.analyze import _row
from vflsim.protocols.fedvs.rounds import BARRIER, ONCE
from vflsim.results.store.closed_forms import curves_of, table_of
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.run import run_protocol
from vflsim.studies.checks.rounds import analyse


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
    for each in analyse(world, "it", data).findings:
        _, finding = _row("it", each)
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
    table_of(curves_of("it", [each for each in findings if isinstance(each, ClosedForm)]))
    known = defaultdict(list)
    for form in (each for each in findings if isinstance(each, ClosedForm)):
        known[UPLOAD if form.name.endswith(UPLOAD) else form.name].append(form)
    own = own_paced(world)
    makers = [(_drawn(world, findings), "drawn", 2 * count if own else count)]
    if steps and known[ROUND] and known[ROUND][0].mean.low > 0:
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


UPLOAD = "uploads"
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
    if not (np.all(np.diff(fast) >= 0) and np.all(slow <= fast + 1e-5) and np.all((fast >= 0) & (fast <= 1))):
        wrong.append(f"{form.name}: no distribution function, or bounds the wrong way round")
    if not np.all(fast >= np.linspace(0.02, 0.98, 25) - 1e-5):
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
    parts = (ROUND, rounds.seconds), (BARRIER, rounds.barrier), (UPLOAD, rounds.upload), (ONCE, rounds.once)
    for name, values in parts:
        for form in known[name] if values is not None else ():
            _compare(found, form, values, heavy, settled)
    for form in known["server steps per second"] if not heavy else ():
        seconds, margin = float(rounds.seconds.mean()), half_width(rounds.seconds) + _SLACK
        found.within(form.name, seconds, 1 / form.mean.high, 1 / form.mean.low, margin)
    for form in known["share of a synchronous round"] if rounds.everybody is not None and not heavy else ():
        whole = float(rounds.everybody.mean())
        ratio = float(rounds.seconds.mean()) / whole
        margin = (half_width(rounds.seconds) + ratio * half_width(rounds.everybody)) / whole + _SLACK
        found.within(form.name, ratio, form.mean.low, form.mean.high, margin)
    if rounds.used is not None and settled:
        for name in (AGE, "steps from one of its own to the next"):
            for form, client in ((each, client) for each in known[name] for client in each.clients):
                share = rounds.used[..., participants(world).index(client)].astype(np.float64)
                low, high = (1 / (mean + (name == AGE)) for mean in (form.mean.high, form.mean.low))
                found.within(f"{name} of {client}", share.mean(), low, high, half_width(share) + _RARE)
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
    return protocol.kind in ("asynchronous", "t_synchronous", "czofo", "dpzv") and not cancelled


def _drawn(world: Scenario, findings: list[Finding]) -> Make | None:
    """How to draw rounds of a world from its stages, None where messages wait for links or late work is not known."""
    round_ = findings[0]
    if not isinstance(round_, ClosedForm):
        return None
    protocol, data = world.protocols["it"].protocol, data_of(world)
    if protocol.kind == "fedvs":
        if round_.exactness == "bounds":
            return None
        return lambda world, count, seed: coded(coded_stages_of(world, "it", data), count, np.random.default_rng(seed))
    if protocol.kind in (
        "fedbcd",
        "easter",
        "c_vfl",
        "ef_vfl",
        "bs_vfl",
        "celu_vfl",
        "flex_vfl",
        "pubsub_vfl",
        "secureboost",
        "he_lr",
    ):
        return None
    cycles = Cycles(protocol, setting(world, "it", data))
    many = len(cycles.clients)
    if protocol.kind not in ("centralised", "local") and not cycles.alone:
        return None
    t = getattr(protocol, "t", 1 if protocol.kind in ("asynchronous", "czofo", "dpzv") else many)
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
    """``python tests/support/closed_form_checks.py [COUNT] [KIND …]``: COUNT (2000) scenarios, and what is wrong."""
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
