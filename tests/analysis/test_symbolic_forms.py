"""Formulas: what sympy evaluates them to is the number that stands beside them, and LaTeX can be had of all."""

import numpy as np
import pytest
import sympy
from scipy import stats

from vflsim.analysis.findings import ClosedForm, Formula, Range
from vflsim.analysis.formulas import (
    age_formulas,
    cdf_of,
    chain_formulas,
    described,
    needs_recursion,
    order_cdf,
    order_mean,
    ordinal,
    pooled_formulas,
    rate_formulas,
    round_formulas,
)
from vflsim.timing.delays import Constant, Exponential, LogNormal, ShiftedExponential, Uniform
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import OrderStatistic, mixture, order_statistic

X = sympy.Symbol("x", real=True)


def exponential(mean: float, shift: float = 0.0) -> Law:
    return OfDelay(Exponential(mean=mean), shift)


@pytest.mark.parametrize(
    "law",
    [
        OfDelay(Exponential(mean=2.0), 0.3, 1.5),
        OfDelay(ShiftedExponential(shift=0.5, mean=2.0), 0.25, 2.0),
        OfDelay(Uniform(low=1.0, high=3.0), 0.5, 0.1),
        Point(2.5),
    ],
    ids=described,
)
@pytest.mark.parametrize("t", [1, 3, 5])
def test_the_symbolic_mean_of_alike_times_is_the_numeric_one(law: Law, t: int) -> None:
    said = order_mean(law, 5, t)
    assert said is not None
    assert float(said.doit()) == pytest.approx(order_statistic([law] * 5, t).expectation(), rel=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("t", [1, 2, 3, 5])
@pytest.mark.parametrize("sizes", [(5,), (2, 3), (1, 2, 2)])
def test_the_symbolic_cdf_is_the_numeric_one(sizes: tuple[int, ...], t: int) -> None:
    laws = [exponential(1.0), exponential(3.0, 0.5), OfDelay(Uniform(low=0.2, high=2.0))][: len(sizes)]
    cdfs = [cdf_of(law, X) for law in laws]
    said = order_cdf([cdf for cdf in cdfs if cdf is not None], sizes, t)
    law = order_statistic([law for law, size in zip(laws, sizes, strict=True) for _ in range(size)], t)
    for x in (0.1, 0.7, 1.9, 4.0):
        assert float(said.subs(X, sympy.Float(x)).doit()) == pytest.approx(float(law.cdf(x)), rel=1e-5)


def test_many_kinds_of_times_need_the_recursion() -> None:
    cdfs = [sympy.Function(f"F_{g}")(X) for g in range(4)]
    assert needs_recursion([1] * 4, 2)
    assert order_cdf(cdfs, [1] * 4, 2).has(sympy.Function("P"))
    assert order_cdf(cdfs, [1] * 4, 4) == sympy.Mul(*cdfs)


def test_every_kind_of_formula_has_text_and_latex() -> None:
    groups = [(exponential(1.0), 4), (OfDelay(LogNormal(median=1.0, sigma=1.0)), 1)]
    names = ["clients 1–4", "client 5"]
    found = [
        *round_formulas(groups, names, 3, exponential(0.1)),
        *round_formulas([], [], 0, Point(0.5)),
        *round_formulas([(exponential(float(m)), 1) for m in range(1, 31)], ["?"] * 30, 7, Point(0.0)),
        *age_formulas(0.25),
        *pooled_formulas(groups, names),
        *rate_formulas([(2.0, "client 1")] * 9),
        *chain_formulas(6, 2, 0.5, 0.1),
    ]
    for formula in found:
        assert " = " in formula.text
        assert formula.latex.count("{") == formula.latex.count("}")
        assert "%" not in formula.latex.replace(r"\%", "")
    assert any("14 more kinds" in formula.note for formula in found)


def test_notes_are_safe_in_latex() -> None:
    formula = Formula(sympy.Symbol("a"), sympy.Symbol("b"), r"50 % of a_b \ {c} & #1 ^ ~")
    assert r"50 \% of a\_b" in formula.latex
    assert "{c}" not in formula.latex


def test_numbers_are_decimals_that_can_be_read() -> None:
    (mean,) = [
        f
        for f in round_formulas([(exponential(2.0, 0.0243240533), 4)], ["all"], 4, Point(0.0))
        if str(f.left) == "E(T)"
    ]
    assert "0.024324053" in mean.text
    assert "harmonic(4)" in mean.text


def test_laws_are_described_in_words() -> None:
    law = mixture([(0.25, Point(1.0)), (0.75, OfDelay(Exponential(mean=2.0), 0.5, 3.0))])
    assert described(law) == "1 (0.25) or 0.5 + 3 × exponential(mean 2) (0.75)"
    assert [ordinal(t) for t in (1, 2, 3, 4, 11, 12, 13, 21, 102)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd"
    ]  # fmt: skip


def test_what_sympy_cannot_say_stands_as_a_probability() -> None:
    assert cdf_of(OrderStatistic(((exponential(1.0), 2),), 1), X) is None


def test_a_closed_form_says_how_well_it_is_known() -> None:
    law = order_statistic([exponential(1.0), exponential(2.0)], 2)
    slower = order_statistic([exponential(1.0), exponential(3.0)], 2)
    numeric, bounds = ClosedForm("a", "s", (), tuple, law), ClosedForm("a", "s", (), tuple, law, slower)
    exact = ClosedForm("a", "s", (), tuple, exponential(2.0))
    assert [form.exactness for form in (numeric, bounds, exact)] == ["numeric", "bounds", "exact"]
    assert (bounds.sd, exact.sd) == (None, 2.0)
    assert exact.quantile(0.5) == Range.of(2 * np.log(2))
    found = bounds.quantile(0.9)
    assert found is not None
    assert found.low < found.high
    assert 2.1 in bounds.mean.__class__(2.0, 2.2)
    mean_only = ClosedForm("a", "s", (), tuple, given=Range(1.0, 2.0))
    assert (mean_only.exactness, mean_only.sd, mean_only.quantile(0.5)) == ("bounds", None, None)


def test_constant_delays_have_a_step_for_a_cdf() -> None:
    assert cdf_of(Point(2.0), X) == sympy.Piecewise((0, X < 2), (1, True))
    assert float(OfDelay(Constant(value=1.0), 0.0, 2.0).cdf(2.0)) == 1.0
    assert stats.expon.cdf(1.0) == pytest.approx(float(cdf_of(exponential(1.0), X).subs(X, 1)))  # type: ignore[union-attr]
