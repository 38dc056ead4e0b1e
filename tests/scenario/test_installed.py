"""Kinds of installed packages: named in a scenario as built-in ones are, and imported only then."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Ended
from tiny_worlds import raw

from vflsim import load
from vflsim.errors import ScenarioError
from vflsim.scenario import own_modules

PROTOCOL = """\
from typing import Literal

from vflsim.protocol import NonNegativeNumber, Synchronous


class Patient(Synchronous):
    kind: Literal["patient"] = "patient"
    patience: NonNegativeNumber = 0.0
"""


def install(folder: Path, package: str, kinds: dict[str, str], code: str = PROTOCOL, version: str = "1.2") -> None:
    """Write a package as an installer leaves it: its module, and its metadata with the entry points."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text(code)
    about = folder / f"{package}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n")
    lines = [f"{name} = {value}" for name, value in kinds.items()]
    (about / "entry_points.txt").write_text("\n".join(["[vflsim.kinds]", *lines, ""]))
    importlib.invalidate_caches()  # within a tick of the file system, the folder looks as it did before


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    own_modules._points.cache_clear()
    yield tmp_path / "site"
    own_modules._points.cache_clear()
    for name in [name for name in sys.modules if name.startswith("vflsim_test_")]:
        del sys.modules[name]


def test_a_kind_of_an_installed_package_is_named_like_a_built_in_one(folder: Path) -> None:
    install(folder, "vflsim_test_patient", {"patient": "vflsim_test_patient:Patient"})
    scenario = load(raw({"it": {"kind": "patient", "patience": 2}}))
    protocol = scenario.protocols["it"].protocol
    assert (type(protocol).__name__, protocol.kind, protocol.model_dump()["patience"]) == ("Patient", "patient", 2)
    assert own_modules.packages_of(scenario.document.raw) == {"patient": "vflsim-test-patient 1.2"}


def test_nothing_is_imported_unless_a_scenario_names_it(folder: Path) -> None:
    install(folder, "vflsim_test_broken", {"broken": "vflsim_test_broken:Broken"}, "raise SystemExit('imported')")
    assert load(raw({"it": {"kind": "synchronous"}})).protocols["it"].protocol.kind == "synchronous"
    assert "vflsim_test_broken" not in sys.modules
    with pytest.raises(ScenarioError, match="vflsim_test_broken:Broken does not import: SystemExit: imported"):
        load(raw({"it": {"kind": "broken"}}))


def test_a_package_cannot_replace_a_built_in_kind(folder: Path) -> None:
    install(folder, "vflsim_test_false", {"synchronous": "vflsim_test_false:Patient"})
    scenario = load(raw({"it": {"kind": "synchronous"}}))
    assert type(scenario.protocols["it"].protocol).__module__ == "vflsim.protocols.synchronous"
    assert "vflsim_test_false" not in sys.modules


def test_two_packages_with_one_kind_are_an_error_that_names_both(folder: Path) -> None:
    for package in ("vflsim_test_one", "vflsim_test_two"):
        install(folder, package, {"patient": f"{package}:Patient"})
    with pytest.raises(ScenarioError) as caught:
        load(raw({"it": {"kind": "patient"}}))
    said = str(caught.value)
    assert "protocols.it.kind" in said
    assert "several installed packages bring this kind: vflsim-test-one 1.2, vflsim-test-two 1.2" in said
    assert '{kind: module, path: "vflsim_test_one:Patient"}' in said


def test_what_is_no_protocol_is_refused_with_the_place(folder: Path) -> None:
    install(folder, "vflsim_test_codec", {"squeezed": "vflsim_test_codec:Patient"})
    with pytest.raises(ScenarioError, match="vflsim_test_codec:Patient is a class but no Codec"):
        load(raw({"it": {"kind": "synchronous"}}, codec={"kind": "squeezed"}))


def test_a_run_notes_kind_package_and_version_and_its_results_load_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vflsim: Callable[..., Ended]
) -> None:
    install(folder, "vflsim_test_patient", {"patient": "vflsim_test_patient:Patient"})
    monkeypatch.chdir(tmp_path)
    world = raw({"it": {"kind": "patient", "patience": 2}, "wait": {"kind": "synchronous"}}, stop={"rounds": 2})
    Path("own.json").write_text(json.dumps(world | {"seeds": [0]}))
    ended = vflsim("run", "own.json", "--out", "out", "--no-report")
    assert ended.status == 0, ended.err
    own, built_in = (json.loads(Path(f"out/{name}/seed-0/run.json").read_text()) for name in ("it", "wait"))
    assert own["installed"] == {"patient": "vflsim-test-patient 1.2"}
    assert any("vflsim_test_patient" in path for path in own["inputs"])
    assert built_in["installed"] == {}  # its bytes do not depend on other protocols of the scenario
    assert load(Path("out/scenario.yaml")).protocols["it"].protocol.kind == "patient"
