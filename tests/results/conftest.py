from pathlib import Path

import pytest
from toy_runs import toy_results, toy_run

from vflsim.results import Results, RunInfo, RunTables


@pytest.fixture(scope="session")
def toy() -> tuple[RunTables, RunInfo]:
    return toy_run("t-sync", 0, horizon=20)


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_results(tmp_path_factory.mktemp("results") / "toy", horizon=30)


@pytest.fixture
def results(toy_folder: Path) -> Results:
    return Results.open(toy_folder)
