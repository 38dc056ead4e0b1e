from pathlib import Path

import pytest
import torch
from explained_study import said

from vflsim.results.read import Results
from vflsim.scenario import load
from vflsim.studies.study import run_study

torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "heads"
    run_study(load(said()), folder)
    return folder


@pytest.fixture(scope="session")
def results(study: Path) -> Results:
    return Results.open(study)
