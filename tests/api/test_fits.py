"""``vflsim.fit``: families of delays, from numbers and files."""

from pathlib import Path

import numpy as np
import pytest

import vflsim
from vflsim.errors import DataError, ScenarioError

DELAYS = np.random.default_rng(3).gamma(2.0, 0.4, 80)


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A p-value is a multiple of 1/101, which still tells 1 %."""
    monkeypatch.setattr("vflsim.timing.measured.fitting.SAMPLES", 100)


def test_numbers_and_their_file_have_equal_fits(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "it.txt", 1e3 * DELAYS)
    one, other = vflsim.fit(1e3 * DELAYS, unit="ms"), vflsim.fit(tmp_path / "it.txt", unit="ms")
    assert one.frame["aic"].to_numpy() == pytest.approx(other.frame["aic"].to_numpy(), rel=1e-9)
    assert one.observed.sum() == pytest.approx(DELAYS.sum())
    assert one.best.kind == one[0].kind == "gamma"
    assert one.entry["kind"] == "gamma"
    assert one.frame.set_index("family").loc["gamma", "parameters"]["shape"] == pytest.approx(2.0, rel=0.5)


def test_the_entry_loads_as_a_delay_of_a_scenario() -> None:
    clients = [{"select": "all", "upload_delay": vflsim.fit(DELAYS).entry}]
    scenario = vflsim.load("quickstart", {"timing.clients": clients})
    assert scenario.timing is not None


def test_a_law_that_is_rejected_is_not_recommended(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    bursts = np.where(random.random(500) < 0.95, random.lognormal(-3, 0.3, 500), random.uniform(5, 11, 500))
    np.savetxt(tmp_path / "it.txt", bursts)
    one, other = vflsim.fit(bursts), vflsim.fit(tmp_path / "it.txt")
    assert one.frame["rejected"].all()
    assert one.recommended is None
    assert other.entry == {"kind": "empirical", "file": str(tmp_path / "it.txt")}
    with pytest.raises(DataError, match="none of the laws fits") as caught:
        _ = one.entry
    assert "file" in caught.value.remedy


def test_a_mixture_that_fits_is_recommended() -> None:
    random = np.random.default_rng(0)
    fits = vflsim.fit(np.where(random.random(500) < 0.9, random.exponential(0.1, 500), random.exponential(2, 500)))
    assert fits.recommended is fits.best
    assert fits.entry["kind"] == "hyper_exponential"


def test_the_figure_has_the_observations() -> None:
    figure = vflsim.fit(DELAYS).figure()
    assert len(figure.numbers["observed"]) == len(DELAYS)


@pytest.mark.parametrize("delays", [[1.0], [-1.0, 2.0], [1.0, float("inf")]])
def test_values_that_are_no_delays_are_refused(delays: list[float]) -> None:
    with pytest.raises(DataError, match="observations"):
        vflsim.fit(delays)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no unit 'days'"):
        vflsim.fit(DELAYS, unit="days")
