"""Presets of timing: published timing in one line, which the scenario's own keys override."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import raw

from vflsim.errors import ScenarioError
from vflsim.scenario import load
from vflsim.scenario.load import dump
from vflsim.scenario.overrides import Preset, preset_names
from vflsim.scenario.resolve import party_timings
from vflsim.timing.compute import Flops

SCENARIOS = Path(__file__).parents[2] / "scenarios"
LATENCY = "timing.clients.link.latency={{kind: uniform, low: {} ms, high: {} ms}}"
PUBLISHED = {
    "fedvs-6.2": [(f"{name}.yaml", []) for name in ("fedvs/fig2_credit", "fedvs/fig4", "timing/fedvs_stragglers")],
    "easter-fig4": [("easter/communication.yaml", []), ("easter/communication.yaml", ["constants.bandwidth=200"])],
    "easter-fig5-low": [("easter/communication.yaml", [LATENCY.format(1, 30)])],
    "easter-fig5-medium": [("easter/communication.yaml", [LATENCY.format(30, 50)])],
    "easter-fig5-high": [("easter/communication.yaml", [LATENCY.format(50, 100)])],
}


@pytest.mark.parametrize(
    ("preset", "file", "overrides"),
    [(preset, file, overrides) for preset, cases in PUBLISHED.items() for file, overrides in cases],
)
def test_a_preset_gives_the_timing_of_the_papers_scenario(preset: str, file: str, overrides: list[str]) -> None:
    said, constants = load(SCENARIOS / file, overrides), [each for each in overrides if each.startswith("constants")]
    short = load(SCENARIOS / file, [*constants, "timing=null", f"timing.preset={preset}"])
    assert party_timings(short) == party_timings(said)
    assert short.timing.network == said.timing.network


@pytest.mark.parametrize("name", preset_names())
def test_a_stored_scenario_holds_what_its_preset_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLSIM_DATA", str(tmp_path))
    (tmp_path / "traces" / "mahimahi").mkdir(parents=True)
    phones = ("Verizon-LTE-short", "TMobile-LTE-short", "ATT-LTE-driving-2016", "TMobile-UMTS-driving")
    for trace in (*phones, "Verizon-EVDO-driving"):  # not vflsim's: of another licence
        for way in ("up", "down"):
            (tmp_path / "traces" / "mahimahi" / f"{trace}.{way}").write_text("1\n2\n")
    scenario = load(raw("synchronous", timing={"preset": name}))
    preset = Preset.read(name)
    assert all([preset.title, preset.source, preset.ours])
    assert scenario.timing.preset is None
    monkeypatch.setattr("vflsim.scenario.overrides.FOLDER", Path("nowhere"))
    again = load(dump(scenario))
    assert again == scenario
    assert party_timings(again) == party_timings(scenario)


def test_own_keys_override_a_preset_as_later_entries_refine_earlier_ones() -> None:
    own: dict[str, Any] = {
        "server": {"compute": "7 ms", "link": {"latency": "3 ms"}},
        "clients": {"select": 4, "link": {"up": "10 Mbps"}},
    }
    plain = load(raw("synchronous", timing={"preset": "fedvs-6.2"}))
    refined = load(raw("synchronous", timing={"preset": "fedvs-6.2", **own}))
    before, after = party_timings(plain), party_timings(refined)
    assert after[1:4] == before[1:4]
    assert (after[4].link.up, after[4].link.down) == (10e6, 300e6)
    assert after[4].upload_delay == before[4].upload_delay
    assert (after[0].link.up, after[0].link.latency.expectation()) == (300e6, 0.003)
    assert after[0].compute != before[0].compute
    assert load(raw("synchronous", timing={"preset": "easter-fig4", "network": "fair"})).timing.network.kind == "fair"


def test_own_constants_override_those_of_a_preset() -> None:
    said = raw("synchronous", timing={"preset": "phones"}, constants={"median": 3, "twice": "2 * median"})
    speeds = [timing.compute.rate for timing in party_timings(load(said))[1:] if isinstance(timing.compute, Flops)]
    assert speeds[0] * speeds[-1] == pytest.approx((3e9) ** 2)
    assert speeds[-1] / speeds[0] == pytest.approx(104 ** (3 / 4))
    assert load(said).symbols["twice"] == 6


def test_an_unknown_preset_is_refused_with_those_there_are(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(dump(load(raw("synchronous", timing={}))).replace("timing: {}", "timing: {preset: fedvs-6.3}"))
    with pytest.raises(ScenarioError, match=r"s\.yaml:\d+: timing\.preset: there is no preset 'fedvs-6\.3'") as caught:
        load(file)
    assert caught.value.allowed == f"{', '.join(preset_names())}; or a file that ends in .yaml"
    assert "'fedvs-6.2'" in caught.value.remedy


@pytest.mark.parametrize("listed", [True, False])
def test_a_wrong_key_beside_a_preset_is_found_in_its_line(listed: bool, tmp_path: Path) -> None:
    file, entry = tmp_path / "s.yaml", "{select: 2, upload_delay: nothing}"
    lines = ["timing:", "  preset: fedvs-6.2", "  clients:", f"    {'- ' if listed else ''}{entry}", ""]
    file.write_text(dump(load(raw("synchronous", timing={}))).replace("timing: {}\n", "\n".join(lines)))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), start=1) if "nothing" in text)
    with pytest.raises(ScenarioError, match=rf"s\.yaml:{line}: timing\.clients\.3\.upload_delay"):
        load(file)


def test_a_key_of_the_preset_that_does_not_fit_is_blamed_on_it() -> None:
    with pytest.raises(ScenarioError, match=r"preset fedvs-6\.2: timing\.clients\.1\.select"):
        load(raw("centralised", timing={"preset": "fedvs-6.2"}, partition={"clients": 1, "by": "columns"}))


def test_a_preset_without_its_files_says_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFLSIM_DATA", str(tmp_path))
    with pytest.raises(ScenarioError, match=r"needs the file traces/mahimahi/Verizon-LTE-short\.up") as caught:
        load(raw("synchronous", timing={"preset": "mahimahi-lte"}))
    assert str(tmp_path) in caught.value.allowed
    assert "github.com/ravinet/mahimahi" in caught.value.remedy


PRESET = "title: measured\ntiming: {network: dedicated, clients: {compute: 3 ms, link: {latency: 2 ms}}}\n"


@pytest.mark.parametrize("beside_the_scenario", [True, False])
def test_a_preset_may_be_a_file_beside_the_scenario_or_in_the_working_directory(
    beside_the_scenario: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, here = tmp_path / "scenarios", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    (folder / "s.yaml").write_text(dump(load(raw("synchronous", timing={}))))
    (folder if beside_the_scenario else here).joinpath("timing.yaml").write_text(PRESET)
    scenario = load(folder / "s.yaml", ["timing.preset=timing.yaml", "timing.clients={compute: 4 ms}"])
    own = party_timings(scenario)[1]
    assert (own.compute.expectation(), own.link.latency.expectation()) == (0.004, 0.002)
    assert scenario.timing.preset is None
    assert load(dump(scenario)) == scenario


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("timing: {clients: {compute: -1}}", r"preset .*mine\.yaml: timing\.clients\.0\.compute"),
        ("title: x\ntimings: {}", r"mine\.yaml:2: timings: a preset has no key 'timings'"),
        ("title: x\ntiming: 3 ms", r"mine\.yaml:2: timing: timing is no mapping"),
        (None, r"timing\.preset: there is no file 'mine\.yaml'"),
    ],
)
def test_a_file_that_is_no_preset_is_refused_with_its_place(
    text: str | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=says):
        load(raw("synchronous", timing={"preset": "mine.yaml"}))
