"""A wheel that is built here, installed into a fresh environment, and used in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import vflsim

ROOT = Path(__file__).parents[1]


@pytest.fixture
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


def test_an_installed_wheel_has_the_scenarios_inside_and_trains_in_an_empty_folder(
    environment: Path, tmp_path: Path
) -> None:
    script = environment / "bin" / "vflsim"
    assert call(script, "--version", cwd=tmp_path) == f"vflsim {vflsim.__version__}\n"
    listed = call(script, "scenarios", cwd=tmp_path)
    names = [
        file.relative_to(ROOT / "scenarios").with_suffix("").as_posix() for file in ROOT.glob("scenarios/**/*.yaml")
    ]
    assert {line.split()[0] for line in listed.splitlines() if line.strip()} >= {*names}
    assert str(environment) in listed
    assert str(ROOT) not in listed
    assert list(environment.glob("lib/*/site-packages/vflsim/py.typed"))

    few = "protocols={wait: {kind: synchronous}, coded: {kind: fedvs, K: 1, T: 1}}"
    call(script, "run", "quickstart", "--seeds", "0:1", "--set", "stop={rounds: 2}", "--set", few, cwd=tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")}
    assert found >= {f"results/quickstart/{name}/seed-0/metrics.parquet" for name in ("wait", "coded")}
    assert (tmp_path / "results" / "quickstart" / "report.html").is_file()
    assert list(environment.glob("lib/*/site-packages/vflsim/report/assets/uPlot.LICENSE"))
