"""What a scenario would run, before it does: sizes, durations, bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsim.api import Framed
from vflsim.party_names import with_names

if TYPE_CHECKING:
    import pandas as pd

    from vflsim.scenario.data import ScenarioData
    from vflsim.scenario.models import Scenario
    from vflsim.studies.checks.expected import Expectation
    from vflsim.studies.checks.run_speed import Speed
    from vflsim.tables import DataTable


def check(
    scenario: Scenario | str | Path | Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    protocols: Sequence[str] = (),
    quick: bool = False,
    workers: int = 1,
    threads: int = 1,
) -> Check:
    """Check a scenario and its data; estimate its runs: virtual and real time, bytes, memory.

    As ``vflsim check``: some steps of each protocol are simulated without training, and some are trained, unless
    ``quick``, to predict real time on this machine with ``workers`` runs at a time of ``threads`` each. ``protocols``
    names those to check (default: all). Raises ``ScenarioError`` and ``DataError``, as a run would.

    Example: ``vflsim.check("quickstart", quick=True).frame[["protocol", "step_s"]]``
    """
    from vflsim.scenario.load import as_scenario, narrowed
    from vflsim.simulation.collector import patient_collector
    from vflsim.studies.checks.data import read_and_check
    from vflsim.studies.checks.expected import expectation
    from vflsim.studies.checks.run_speed import speeds
    from vflsim.studies.checks.tryout import refuse_broken
    from vflsim.vocabulary.execution_options import DeviceWish, RunOptions

    loaded = narrowed(as_scenario(scenario, overrides), protocols)
    device: DeviceWish = "cpu" if quick else "auto"  # what runs nothing asks PyTorch for no device
    options = RunOptions.of(workers=workers, threads=threads, device=device)
    with patient_collector():  # of a million clients all objects stay
        data = read_and_check(loaded, options.workers)
        if not quick:
            refuse_broken(loaded, data)
        start_s = time.process_time()  # a worker, too, imports all this and reads the data
        expectations = [expectation(loaded, name, data.of(loaded.training_of(name))) for name in loaded.protocols]
    measured = None if quick else speeds(loaded, data, expectations, options.execution)
    return Check(loaded, data, expectations, measured, workers, start_s)


@dataclass(frozen=True)
class Check(Framed):
    """What a scenario would run, by protocol. ``speeds`` were measured on this machine; None after a quick check.

    Example::

        expected = vflsim.check("quickstart", quick=True)
        expected.runs
        expected.frame[["protocol", "rounds", "round_bytes"]]
    """

    scenario: Scenario
    data: ScenarioData
    expectations: Sequence[Expectation]
    speeds: Mapping[str, Speed] | None
    workers: int = 1
    start_s: float = 0.0
    """Seconds of processor time that each of several workers takes to start."""

    @property
    def runs(self) -> int:
        """The number of runs: protocols × seeds."""
        return len(self.scenario.protocols) * len(self.scenario.seeds)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per protocol: protocol, kind, clients, step_s, rounds, round_bytes, parameters, memory_bytes, run_s.

        ``step_s`` is the mean virtual time of a server step, ``rounds`` the rounds until the first stop rule (infinite
        if only a target ends a run), ``run_s`` the real time of a run with a core to itself (NaN after a quick check).
        """
        import pandas as pd

        speeds = self.speeds
        return pd.DataFrame(
            {
                "protocol": each.protocol,
                "kind": each.kind,
                "clients": each.clients,
                "step_s": each.step_s,
                "rounds": each.rounds,
                "round_bytes": each.round_bytes,
                "parameters": each.size.parameters,
                "memory_bytes": each.size.bytes,
                "run_s": float("nan") if speeds is None else speeds[each.protocol].run_s(each),
            }
            for each in self.expectations
        )

    @property
    @with_names(lambda check: check.scenario.document.raw)
    def table(self) -> DataTable:
        """The table of ``vflsim check``, with its notes."""
        from vflsim.studies.checks.expected_table import expectation_table

        return expectation_table(self.scenario, self.expectations, self.speeds, self.workers, self.start_s)
