"""A distribution on a grid, within its stated error of scipy's: any scale, both tails, jumps, integrals."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from vflsim.timing.delays import Constant, Exponential, Mixture
from vflsim.timing.laws.grid import CDF_ERROR, Grid
from vflsim.timing.laws.law import Atoms

LAWS = {
    "exponential": (stats.expon(scale=1e-7), math.inf),
    "gamma with an infinite density": (stats.gamma(0.3), math.inf),
    "log-normal": (stats.lognorm(2.5, scale=1e6), math.inf),
    "Pareto": (stats.pareto(1.5), 1.5),
    "uniform": (stats.uniform(1, 2), math.inf),
    "narrow": (stats.norm(100, 1e-4), math.inf),
}
LEVELS = np.concatenate([[1e-9, 1e-6, 1e-4], np.linspace(0.001, 0.999, 501), [1 - 1e-4, 1 - 1e-6, 1 - 1e-9]])


def grid_of(law, index: float) -> Grid:
    start, end = law.support()
    return Grid.of(lambda x: (law.cdf(x), law.sf(x)), (max(start, 0.0), end), np.array([]), index)


@pytest.mark.parametrize(("law", "index"), LAWS.values(), ids=LAWS)
def test_cdf_both_tails_and_quantiles_are_within_the_stated_error(law, index) -> None:
    grid, x = grid_of(law, index), law.ppf(LEVELS)
    assert np.abs(grid.cdf(x) - law.cdf(x)).max() < 10 * CDF_ERROR
    assert grid.survival(x) == pytest.approx(law.sf(x), rel=1e-3)
    assert grid.cdf(x) == pytest.approx(law.cdf(x), rel=1e-3)
    assert grid.quantile(LEVELS) == pytest.approx(x, rel=1e-4)
    inner = LEVELS[5:-5]
    assert grid.density(law.ppf(inner)) == pytest.approx(law.pdf(law.ppf(inner)), rel=1e-2)
    assert np.all(np.diff(grid.cdf(np.sort(np.append(x, grid.points)))) >= 0)


@pytest.mark.parametrize(("law", "index"), LAWS.values(), ids=LAWS)
def test_moments_are_those_of_formulas(law, index) -> None:
    mean, variance = grid_of(law, index).moments
    assert mean == pytest.approx(law.mean(), rel=2e-5)
    assert variance == pytest.approx(law.var(), rel=1e-4)


@pytest.mark.parametrize("name", ["exponential", "gamma with an infinite density", "uniform", "narrow"])
def test_integrals_are_those_of_quadrature(name: str) -> None:
    law, index = LAWS[name]
    grid = grid_of(law, index)
    for level in (0.1, 0.9, 0.999):
        x, end = law.ppf([level, 1 - 1e-14])
        after = integrate.quad(law.sf, x, end, epsabs=0, epsrel=1e-9)[0]
        assert grid.integrals(np.array(x), upper=True) == pytest.approx(after, rel=5e-4)
        assert grid.integrals(np.array(x), upper=False) == pytest.approx(after + x - law.mean(), rel=5e-4)
        assert grid.beyond(x)[0] == pytest.approx(after, rel=5e-4)


@pytest.mark.parametrize("place", [1 / 3, 0.7182818])
def test_a_jump_that_nobody_tells_of_is_kept(place: float) -> None:
    def levels(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        below = x / 2 + np.where(x >= place, 0.5, 0.0)
        return below, 1 - below

    grid = Grid.of(levels, (0.0, 1.0), np.array([]), math.inf)
    assert grid.cdf(place * np.array([1 - 1e-9, 1 + 1e-9])) == pytest.approx([place / 2, place / 2 + 0.5], abs=1e-6)


def test_blocks_keep_the_mean_and_all_probability() -> None:
    grid = grid_of(stats.gamma(3), math.inf)
    edges, masses = grid.blocks
    assert masses.sum() == pytest.approx(1.0, abs=1e-12)
    assert masses @ (edges[1:] + edges[:-1]) / 2 == pytest.approx(3.0, rel=1e-6)


def test_the_excess_of_a_law_counts_its_atoms() -> None:
    law = Mixture(weights=[1, 1], parts=[Constant(value=2.0), Exponential(mean=1.0)])
    x = np.array([0.0, 1.0, 3.0])
    expected = np.maximum(2 - x, 0) / 2 + np.exp(-x) / 2
    assert law.excess(x) == pytest.approx(expected, rel=1e-4)
    assert law.atoms() == Atoms.at(2.0).weighed(0.5)
