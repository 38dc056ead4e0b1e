"""What a run reports of privacy, in ``run.json``, in the summary, and before it is run."""

import json
from pathlib import Path

import numpy as np
import pytest
from tiny_worlds import raw

import vflsim
from vflsim.learning.learners.releases import Releases
from vflsim.learning.privacy.accounting import epsilon_of
from vflsim.learning.privacy.mechanisms import Gaussian
from vflsim.results.facts import PrivacyFacts
from vflsim.results.statistics import summarise
from vflsim.results.tables import comparison_table, markdown

DP = {"kind": "gaussian", "clip": 1.5, "delta": 1e-5, "epsilon": 5, "per": "release"}
PROTOCOLS = {"wait": {"kind": "synchronous"}, "wait-dp": {"kind": "synchronous", "mechanism": DP}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> vflsim.results.read.Results:
    scenario = raw(PROTOCOLS, stop={"rounds": 12}, seeds=[0, 1])
    return vflsim.run(scenario, tmp_path_factory.mktemp("dp") / "results")


def test_the_facts_are_those_of_the_client_that_released_most() -> None:
    gaussian = Gaussian(clip=1.0, delta=1e-5, noise_multiplier=2.0)
    each = [Releases(gaussian, 0, party, 4) for party in (1, 2, 3)]
    each[0].begin("first_fill", slice(None)).commit()
    for _ in range(3):
        each[1].begin("embed", np.array([0])).commit()
    facts = PrivacyFacts.of(gaussian, each)
    assert (facts.releases, facts.rows_released) == (3, 4)
    assert facts.epsilon_release == epsilon_of(2.0, 1e-5)
    assert facts.epsilon_run == epsilon_of(2.0, 1e-5, 3)
    assert facts.epsilon_client == epsilon_of(2.0, 1e-5, 4)
    assert (facts.sigma, facts.sensitivity, facts.asked_for) == (4.0, 2.0, "noise_multiplier")
    none = Releases(gaussian, 0, 1, 0)
    assert PrivacyFacts.of(gaussian, []).epsilon_run == PrivacyFacts.of(gaussian, [none]).epsilon_run == 0


def test_run_json_says_what_epsilon_is_about(results: vflsim.results.read.Results) -> None:
    said = json.loads((Path(results.folder) / "wait-dp" / "seed-1" / "run.json").read_text())["privacy"]
    assert said["asked_for"] == "epsilon per release"
    assert said["epsilon_release"] == pytest.approx(5)
    assert said["releases"] == 3  # 12 rounds of 20 of 90 rows
    assert said["epsilon_run"] == epsilon_of(said["noise_multiplier"], 1e-5, 3)
    assert said["rows_released"] == 220
    assert said["sigma"] == pytest.approx(3 * said["noise_multiplier"])
    assert said["amplification_by_subsampling"] == "none"
    assert "one sample's features at one client" in said["neighbours"]
    assert "simulation" in said["sampling"]
    assert json.loads((Path(results.folder) / "wait" / "seed-1" / "run.json").read_text())["privacy"] is None


def test_the_summary_says_epsilon_per_what(results: vflsim.results.read.Results) -> None:
    notes = [note for note in comparison_table(results).notes if note.startswith("wait-dp: ")]
    assert len(notes) == 1
    assert "ε = 5 (δ = 1e-05) per release of a sample" in notes[0]
    facts = results.run("wait-dp", 0).info.privacy
    assert facts is not None
    assert f"{facts.epsilon_run:.4g} for the 3 releases of a sample in the whole run" in notes[0]
    assert "without amplification by sub-sampling" in notes[0]
    assert notes[0] in markdown(results, summarise(results))
