"""The key ``power``: units, formulas, refinement of entries, and mistakes with their file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import raw

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.resolve import party_timings
from vflsim.timing.party import Power


def written(folder: Path, **of_client: Any) -> Path:
    """A scenario file whose clients have this power."""
    said = raw("synchronous", timing={"clients": {"select": "all", "power": of_client}})
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(said, indent=1))
    return path


def test_units_and_formulas_of_every_party() -> None:
    entries = [
        {"select": "all", "power": {"idle": "300 mW", "compute": "(2*m) W"}},
        {"select": "N", "power": {"per_byte": "0.1 uJ", "per_flop": "(50*i) pJ"}},
    ]
    timing = {"server": {"power": {"idle": "0.06 kW"}}, "clients": entries}
    server, first, second, _, last = (each.power for each in party_timings(load(raw("synchronous", timing=timing))))
    assert (server, first, second) == (Power(idle=60), Power(idle=0.3, compute=2), Power(idle=0.3, compute=4))
    assert last == Power(per_byte=0.1 / 10**6, per_flop=50 / 10**12)  # a later entry replaces it as a whole
    assert (first.computing, last.computing) == (2, 0)


def test_a_power_can_be_overridden() -> None:
    said = raw("synchronous", timing={"server": {"power": {"idle": "60 W", "compute": "200 W"}}})
    changed = load(said, ["timing.server.power.compute=90 W"])
    assert party_timings(changed)[0].power == Power(idle=60, compute=90)


@pytest.mark.parametrize(
    ("power", "key", "what"),
    [
        ({"idle": "2 kg"}, "power.idle", "the unit 'kg' of '2 kg' does not fit a power"),
        ({"per_byte": "1 W"}, "power.per_byte", "the unit 'W' of '1 W' does not fit a quantity of energy"),
        ({"radio": -1}, "power.radio", "-1 is out of range"),
        ({"watts": "2 W"}, "power.watts", "there is no key 'watts' here"),
        ({"idle": "6 W", "compute": "2 W"}, "power", "a party draws 2 W while it computes, and 6 W while it does not"),
        ({}, "power", "no power and no energy is named"),
    ],
)
def test_mistakes_name_file_line_and_key(power: dict[str, Any], key: str, what: str, tmp_path: Path) -> None:
    path = written(tmp_path, **power)
    with pytest.raises(ScenarioError) as refused:
        load(path)
    last = key.rpartition(".")[2]
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if f'"{last}":' in text)
    assert str(refused.value).startswith(f"{path}:{line}: timing.clients.{key}: {what}")
