"""Families of delays fitted to measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final, overload

from vflsim.api import Framed
from vflsim.errors import DataError, ScenarioError

if TYPE_CHECKING:
    import pandas as pd

    from vflsim.plotting.style import Picture
    from vflsim.timing.floats import Floats
    from vflsim.timing.measured.fitting import Fit

DRAWN = 4
"""The best fits that a figure shows."""


def fit(delays: str | Path | Iterable[float], *, column: str | None = None, unit: str = "s") -> Fits:
    """Fit every family of delays by maximum likelihood; rank by AIC, an exponential before its near equals.

    ``delays`` is a file (CSV, Parquet, NPY, or text with one number a line; ``column`` of a table), or numbers, in
    ``unit`` (s, ms, us, ns, min, h). As ``vflsim delays fit``. Raises ``ScenarioError`` for an unknown unit,
    ``DataError`` for values that are no delays.

    Example: ``vflsim.fit([1.0, 2.5, 1.7, 3.1, 1.2, 2.2, 1.9, 4.0, 1.1, 2.8]).best.kind``
    """
    from vflsim.timing.measured.fitting import fit_all

    if isinstance(delays, str | Path):
        name, resampled = str(delays), _resampled(delays, column, unit)
        observed = observed_in(delays, column, unit)
    else:
        name, resampled, observed = "delays", None, _seconds(delays, unit)
    try:
        return Fits(name, observed, fit_all(observed), resampled)
    except ValueError as error:
        what, _, allowed = str(error).partition("; allowed: ")
        raise DataError(what, name, allowed) from None


@final
class Fits(Framed, Sequence["Fit"]):
    """Fits of all families, the best first; ``observed`` are the delays in seconds, ascending.

    ``resampled`` are they as a delay of a scenario, if they came from a file.

    Example::

        fits = vflsim.fit([1.0, 2.5, 1.7, 3.1, 1.2, 2.2, 1.9, 4.0, 1.1, 2.8])
        fits.entry  # what a scenario takes as a delay, such as {'kind': 'exponential', 'mean': 2.15}
        fits.frame[["family", "aic"]]
        fits.figure().savefig("fits.png")
    """

    def __init__(
        self, name: str, observed: Floats, fits: Sequence[Fit], resampled: dict[str, Any] | None = None
    ) -> None:
        self.name, self.observed, self.resampled = name, observed, resampled
        self._fits = tuple(fits)

    @overload
    def __getitem__(self, place: int) -> Fit: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Fit]: ...

    def __getitem__(self, place: int | slice) -> Fit | Sequence[Fit]:
        return self._fits[place]

    def __len__(self) -> int:
        return len(self._fits)

    @property
    def good(self) -> tuple[Fit, ...]:
        """The families that have a member."""
        return tuple(each for each in self._fits if each.delay is not None)

    @property
    def best(self) -> Fit:
        """The best fit. Raises ``DataError`` if no family could have given the delays."""
        if not self.good:
            raise DataError("no family could have given these delays", self.name)
        return self.good[0]

    @property
    def recommended(self) -> Fit | None:
        """The best fit that is not rejected (``Fit.rejected``); None if all are."""
        return next((each for each in self.good if not each.rejected), None)

    @property
    def entry(self) -> dict[str, Any]:
        """What describes the delays, as a delay of a scenario, with the digits that their number supports.

        It is ``recommended``, or else the delays themselves. Raises ``DataError`` for numbers that no family describes.
        """
        from vflsim.timing.measured.fitting import rounded

        if self.recommended is not None and self.recommended.delay is not None:
            return entry_of(rounded(self.recommended.delay, self.observed))
        if self.resampled is None:
            what, remedy = (
                "none of the laws fits these delays",
                "write them to a file, and give its name in their place",
            )
            raise DataError(what, self.name, "delays of a file, which can be resampled", remedy)
        return self.resampled

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per family: family, aic, log_likelihood, ks, p_value, rejected, parameters (a mapping), why_not."""
        import pandas as pd

        return pd.DataFrame(
            {
                "family": each.kind,
                "aic": each.aic,
                "log_likelihood": each.log_likelihood,
                "ks": each.ks_statistic,
                "p_value": each.ks_p_value,
                "rejected": each.rejected,
                "parameters": {} if each.delay is None else parameters_of(each.delay),
                "why_not": each.why_not,
            }
            for each in self._fits
        )

    def figure(self) -> Picture:
        """Draw densities, distribution functions, quantiles and tails of the delays and of the best fits."""
        from vflsim.plotting import delays as plots

        drawn = {each.kind: each.delay for each in self.good[:DRAWN] if each.delay is not None}
        return plots.fits(self.observed, drawn, Path(self.name).name)


def observed_in(file: str | Path, column: str | None, unit: str) -> Floats:
    """Read measured delays, in seconds, ascending. Raises ``ScenarioError`` for a unit, ``DataError`` for the rest."""
    from vflsim.timing.readers import read_observed

    try:
        return read_observed(Path(file), column, known_unit(unit))  # type: ignore[arg-type]
    except ValueError as error:
        what, _, allowed = str(error).removeprefix(f"{file}: ").partition("; allowed: ")
        raise DataError(what, str(file), allowed) from None


def known_unit(unit: str) -> str:
    """Return a unit of time. Raises ``ScenarioError`` for another word."""
    from vflsim.vocabulary.quantities import TIME

    if unit not in TIME.units:
        raise ScenarioError(f"there is no unit {unit!r}", "delays fit: unit", ", ".join(TIME.units))
    return unit


def entry_of(delay: Any) -> dict[str, Any]:
    """Return a delay as a scenario entry."""
    entry: dict[str, Any] = delay.model_dump(mode="json", exclude_none=True)
    return entry


def parameters_of(delay: Any) -> dict[str, Any]:
    """Return the parameters of a delay, in SI units."""
    return {key: value for key, value in entry_of(delay).items() if key != "kind"}


def _resampled(file: str | Path, column: str | None, unit: str) -> dict[str, Any]:
    optional = {"column": column, "unit": None if unit == "s" else unit}
    return {
        "kind": "empirical",
        "file": str(Path(file).resolve()),
        **{key: value for key, value in optional.items() if value},
    }


def _seconds(delays: Iterable[float], unit: str) -> Floats:
    import numpy as np

    from vflsim.vocabulary.quantities import TIME

    factor = TIME.units[known_unit(unit)]
    values = np.sort(np.asarray([*delays], np.float64))
    return values * factor.numerator / factor.denominator  # 5 ms is exactly the float 0.005
