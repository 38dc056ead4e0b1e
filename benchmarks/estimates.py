"""How good the real times are that `vflsim check` predicts: predicted ÷ real, for all shipped scenarios, shortened.

Each scenario has a process of its own. It estimates every protocol's run as `check` does, cuts its stop rule to the
rounds that take some seconds by that estimate, and runs it with the first seed. Predicted are seconds on a core. Real
are the seconds of the processor that the run took, results written; beside them stand those of the wall clock, which
are longer on a busy machine. Aim: every scenario and every protocol within 0.5 to 2. With --busy N, N processes that do
nothing but compute run beside it; each scenario's process is in a session of its own, as commands in terminals are.
Scenarios without their data are left out.
Run: VFLSIM_DATA=… python benchmarks/estimates.py [--busy N] [--seconds S] [--each] [SCENARIO …]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "scenarios"
LEAST, MOST = 0.5, 2.0


def measured(path: str, seconds: float) -> list[dict[str, float | str]]:
    """Estimate and run every protocol of a scenario, shortened to so many seconds."""
    import vflsim
    from vflsim.scenario.resolve import ScenarioData
    from vflsim.stopping import Stop
    from vflsim.studies.checks.data import read_and_check
    from vflsim.studies.checks.estimates import expectation
    from vflsim.studies.checks.run_speed import measured_speed
    from vflsim.studies.runs.group import Member, carry_out
    from vflsim.studies.runs.interrupt import Interrupt
    from vflsim.studies.runs.progress import StudyRun
    from vflsim.studies.runs.simulator_choice import Choice
    from vflsim.studies.runs.spec import StudySpec
    from vflsim.vocabulary.execution_options import RunOptions

    scenario = vflsim.load(path, ["seeds=0:1"])
    data, options = ScenarioData(scenario), RunOptions(checkpoint_every=None)
    found: list[dict[str, float | str]] = []
    for name in scenario.protocols:
        entry, loaded = scenario.protocols[name], data.of(scenario.training_of(name))
        whole = expectation(scenario, name, loaded)
        began = time.process_time()
        speed = measured_speed(scenario, whole, loaded)
        check_s = time.process_time() - began
        rounds = int(max(1, min(whole.rounds, (seconds - speed.startup_s) / speed.round_s)))
        predicted = speed.run_s(replace(whole, rounds=float(rounds)))
        no_other = dict.fromkeys(Stop.model_fields)
        short = entry.model_copy(update={"stop": Stop.model_construct(**{**no_other, "rounds": rounds})})
        shortened = scenario.model_copy(update={"protocols": {name: short}})
        read_and_check(shortened)  # as `vflsim run` does before it runs: noise is calibrated to the rounds
        with tempfile.TemporaryDirectory() as folder:
            spec = StudySpec(shortened, Path(folder), {name: Choice("events")}, False, options)
            cpu, wall = time.process_time(), time.perf_counter()
            member = Member(spec, StudyRun(name, 0, 1, 1), lambda progress: None)
            ((_, report),) = carry_out([member], data, Interrupt())
            real, passed = time.process_time() - cpu, time.perf_counter() - wall
        assert report.error is None, report.error
        found.append(
            {
                "protocol": name,
                "rounds": rounds,
                "predicted": predicted,
                "real": real,
                "wall": passed,
                "check": check_s,
            }
        )
    return found


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes computing."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(options: argparse.Namespace) -> None:
    """Print the table."""
    paths = options.scenarios or sorted(map(str, FOLDER.rglob("*.yaml")))
    print(f"{options.busy} busy processes beside; runs of about {options.seconds:g} s")
    print(f"{'scenario':<28} {'predicted s':>11} {'real s':>8} {'wall s':>8} {'check s':>8}  ratio   of each protocol")
    ratios: list[float] = []
    with busy(options.busy):
        for path in paths:
            said = [sys.executable, __file__, "--child", "--seconds", str(options.seconds), path]
            done = subprocess.run(said, text=True, capture_output=True, check=False, start_new_session=True)
            name = str(Path(path).with_suffix("")).removeprefix(f"{FOLDER}/")
            if done.returncode:
                print(f"{name:<28} left out: {done.stderr.strip().splitlines()[-1][:120]}", flush=True)
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            sums = [sum(each[key] for each in found) for key in ("predicted", "real", "wall", "check")]
            own = sorted(each["predicted"] / each["real"] for each in found)
            ratios += own
            columns = " ".join(f"{total:{width}.1f}" for total, width in zip(sums, (11, 8, 8, 8), strict=True))
            print(f"{name:<28} {columns}  {sums[0] / sums[1]:5.2f}   {own[0]:.2f} to {own[-1]:.2f}", flush=True)
            for each in found if options.each else ():
                ratio = each["predicted"] / each["real"]
                print(
                    f"    {each['protocol']:<24} {each['predicted']:11.2f} {each['real']:8.2f} {each['wall']:8.2f} "
                    f"{each['check']:8.2f}  {ratio:5.2f}   {each['rounds']} rounds",
                    flush=True,
                )
    within = sum(LEAST <= ratio <= MOST for ratio in ratios)
    if ratios:
        print(f"{within} of {len(ratios)} runs within {LEAST} to {MOST}; {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", help="scenario files; without any, all that are shipped")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside it")
    parser.add_argument("--seconds", type=float, default=3.0, help="about how long a run takes")
    parser.add_argument("--each", action="store_true", help="print every protocol")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measured(given.scenarios[0], given.seconds)))
    else:
        main(given)
