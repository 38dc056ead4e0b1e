"""The ways to install agree: README, Dockerfile, devcontainer and workflow with each other and with pyproject.toml."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
STEPS = [tuple(line.split(maxsplit=1)) for line in LINES if line.strip() and not line.startswith("#")]
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
WORKFLOW = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "ci.yml")
CPU_ONLY = ["--torch-backend", "cpu", "-c", "constraints.txt"]
"""How uv installs PyTorch without the libraries of graphics cards."""


def of(instruction: str) -> list[str]:
    return [rest for word, rest in STEPS if word == instruction]


def uv_words(command: str) -> list[str]:
    """The words of a command's ``uv pip install``, without those that say where to."""
    (part,) = [each for each in command.split("&&") if "uv pip install" in each]
    return [word for word in shlex.split(part)[3:] if word not in ("--system", "--no-cache")]


def test_the_dockerfile_has_known_instructions_and_copies_what_is_there() -> None:
    assert {word for word, _ in STEPS} <= {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
    assert all((ROOT / word).exists() for line in of("COPY") for word in line.split()[:-1])
    (entry,), (usual,) = of("ENTRYPOINT"), of("CMD")
    assert [*json.loads(entry), *json.loads(usual)] == [*PROJECT["scripts"], "--help"]
    assert of("USER"), "not as root"


def test_all_of_them_install_pytorch_for_the_cpu_alone_by_the_readmes_line() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^uv venv .*$", readme, re.MULTILINE)
    assert uv_words(line) == [*CPU_ONLY, "-e", "."]
    (run,) = [each for each in of("RUN") if "uv pip install" in each]
    assert uv_words(run) == [*CPU_ONLY, "."]
    *options, flag, place = uv_words(CONTAINER["postCreateCommand"])
    assert (options, flag) == (CPU_ONLY, "-e")
    extras = re.fullmatch(r"\.\[(.*)\]", place)
    assert extras is not None
    assert {*extras[1].split(",")} <= PROJECT["optional-dependencies"].keys()


def test_the_devcontainer_is_built_from_a_stage_of_the_dockerfile() -> None:
    folder = ROOT / ".devcontainer"
    build = CONTAINER["build"]
    assert (folder / build["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (folder / build["context"]).resolve() == ROOT
    assert f"python:{image_version()}-slim AS {build['target']}" in of("FROM")


def image_version() -> str:
    found = re.search(r"python:(3\.\d+)-slim", of("FROM")[0])
    assert found is not None
    return found[1]


def minor(version: str) -> int:
    return int(version.split(".")[1])


def test_versions_of_python_are_those_that_the_project_allows_and_is_tested_with() -> None:
    tested = WORKFLOW["jobs"]["all"]["strategy"]["matrix"]["python"]
    assert f">={min(tested, key=minor)}" == PROJECT["requires-python"]
    assert image_version() in tested


def steps_of(job: str) -> list[dict[str, Any]]:
    return [step for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_other_systems_take_the_first_minute_and_some_of_the_tests(system: str) -> None:
    job = WORKFLOW["jobs"]["elsewhere"]
    assert any(name.startswith(system) for name in job["strategy"]["matrix"]["os"])
    install, first, tests = (step["run"] for step in steps_of("elsewhere"))
    assert shlex.split(install) == ["pip", "install", "-c", "constraints.txt", "-e", ".[test]"]
    assert "vflsim run quickstart --quick" in first
    assert all((ROOT / word).is_dir() for word in shlex.split(tests) if word.startswith("tests/"))


def test_no_way_names_a_package_index() -> None:
    texts = [*LINES, json.dumps(CONTAINER), (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")]
    assert not re.search(r"--(extra-)?index-url|--index\b|-i https?:|find-links", "\n".join(texts))
