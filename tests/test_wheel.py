"""A wheel that is built here, installed into a fresh environment, and used in an empty folder."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

import vflsim
from vflsim.shipped import shipped

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; it borrows nothing but the other packages of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    env = folder / "env"
    venv.create(env, with_pip=False, symlinks=True)
    pip = ("-m", "pip", "--disable-pip-version-check", "--quiet", "--python", env)
    call(sys.executable, *pip, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    (packages,) = env.glob("lib/python*/site-packages")
    others = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("\n".join(others) + "\n")  # their own .pth files are not followed
    return env


def call(*command: object, cwd: Path) -> str:
    """Run a command without this repository on Python's path; return what it prints."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VFLSIM"))}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_installed_wheel_has_the_scenarios_inside_and_trains_in_an_empty_folder(
    environment: Path, tmp_path: Path
) -> None:
    script = environment / "bin" / "vflsim"
    assert call(script, "--version", cwd=tmp_path) == f"vflsim {vflsim.__version__}\n"
    listed = call(script, "scenarios", cwd=tmp_path)
    names = shipped()
    assert {line.split()[0] for line in listed.splitlines() if line.strip()} >= {*names}
    assert str(environment) in listed
    assert str(ROOT) not in listed
    assert list(environment.glob("lib/*/site-packages/vflsim/py.typed"))

    few = "protocols={wait: {kind: synchronous}, coded: {kind: fedvs, K: 1, T: 1}}"
    call(script, "run", "quickstart", "--seeds", "0:1", "--set", "stop={rounds: 2}", "--set", few, cwd=tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")}
    assert found >= {f"results/quickstart/{name}/seed-0/metrics.parquet" for name in ("wait", "coded")}
    assert (tmp_path / "results" / "quickstart" / "report.html").is_file()
    assert list(environment.glob("lib/*/site-packages/vflsim/reporting/assets/uPlot.LICENSE"))


PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "vflsim-nightly"
version = "0.3.1"

[project.entry-points."vflsim.kinds"]
nightly = "vflsim_nightly:Nightly"
margin = "vflsim_nightly:Margin"
hasty = "vflsim_nightly:Hasty"
"""
MODULE = """\
from typing import ClassVar, Literal

from vflsim.protocol import Availability, Interrupted, Loss, PositiveSeconds, StepProfile, Synchronous


class Nightly(Availability):
    kind: Literal["nightly"] = "nightly"
    away: PositiveSeconds
    interrupted: Interrupted = "resumed"

    def profile(self, seed, party):
        return StepProfile([0.0, 0.01, 0.01 + self.away], [1.0, 0.0, 1.0], period=0.2)


class Margin(Loss):
    kind: Literal["margin"] = "margin"
    tasks: ClassVar[tuple[str, ...]] = ("multiclass",)

    def value(self, prediction, target):
        own = prediction.gather(1, target[:, None])
        return (1 - own + prediction).clamp(min=0).mean()


class Hasty(Synchronous):
    kind: Literal["hasty"] = "hasty"
"""
SCENARIO = """\
name: installed
data: {name: digits, train_rows: 90, test_fraction: 0.1}
partition: {clients: 3}
models: {client: {kind: linear, embedding: 4}, aggregate: mean, server: {kind: linear}}
training:
  batch: 30
  loss: {kind: margin}
  client_optimizer: {kind: sgd, lr: 0.1}
  server_optimizer: {kind: sgd, lr: 0.1}
timing: {clients: {compute: 1 ms, availability: {kind: nightly, away: 20 ms}}}
protocols: {wait: {kind: synchronous}, mine: {kind: hasty}}
stop: {rounds: 20}
"""


@pytest.mark.slow
def test_kinds_of_a_package_that_is_built_and_installed_there_run_and_are_told_with_its_version(
    environment: Path, tmp_path: Path
) -> None:
    source = tmp_path / "package"
    (source / "vflsim_nightly").mkdir(parents=True)
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "vflsim_nightly" / "__init__.py").write_text(MODULE)
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    pip = ("-m", "pip", "--disable-pip-version-check", "--quiet", "--python", environment)
    call(sys.executable, *pip, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)

    place = tmp_path / "empty"
    place.mkdir()
    (place / "scenario.yaml").write_text(SCENARIO)
    script = environment / "bin" / "vflsim"
    call(script, "run", "scenario.yaml", "--out", "out", "--no-report", cwd=place)
    for name, kinds in (("wait", ("margin", "nightly")), ("mine", ("hasty", "margin", "nightly"))):
        info = json.loads((place / "out" / name / "seed-0" / "run.json").read_text())
        assert info["status"] == "finished"
        assert info["installed"] == dict.fromkeys(kinds, "vflsim-nightly 0.3.1")
        assert any(str(environment) in path and "vflsim_nightly" in path for path in info["inputs"])
    call(script, "verify", "out", cwd=place)


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a checkout knows which files are its own")
def test_one_command_builds_the_archive_and_the_wheel_and_checks_them(tmp_path: Path) -> None:
    clone, out = tmp_path / "clone", tmp_path / "dist"
    call("git", "clone", "-q", "--depth", "1", ROOT.as_uri(), clone, cwd=tmp_path)
    said = call(sys.executable, clone / ".ci" / "build", out, cwd=clone)
    stem = f"vflsim-{vflsim.__version__}"
    assert f"{stem}: " in said
    assert {path.name for path in out.iterdir()} == {f"{stem}.tar.gz", f"{stem}-py3-none-any.whl"}
    (clone / "vflsim" / "stray.py").touch()
    with pytest.raises(AssertionError, match=r"wheel: vflsim/stray\.py does not belong there"):
        call(sys.executable, clone / ".ci" / "build", out, cwd=clone)


def test_files_that_are_missing_or_do_not_belong_there_are_named() -> None:
    build = runpy.run_path(str(ROOT / ".ci" / "build"))
    assert build["differences"]("wheel", {"a", "b"}, {"b", "c"}) == [
        "wheel: c is missing",
        "wheel: a does not belong there",
    ]
    expected = build["expected_in_wheel"]({"vflsim/a.py", "scenarios/b.yaml", "tests/c.py"})
    assert expected == {"vflsim/a.py", "vflsim/scenarios/b.yaml"}


def test_the_version_stands_in_one_place_and_the_citation_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert f"version: {vflsim.__version__}\n" in (ROOT / "CITATION.cff").read_text()
