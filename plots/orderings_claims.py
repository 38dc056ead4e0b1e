"""The published claims that the study of orderings tests, and what came of each: see scenarios/orderings/plan.md."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from orderings_estimates import COSTS, SEED, WORLDS, Block, blocks, table
from scipy.stats import permutation_test

from vflsim.intervals import holm

LEVEL = 0.05
FLIPS = 99_999
HOLDS, FAILS, OPEN, BOTH = "holds", "fails", "cannot be told", "both"


@dataclass(frozen=True)
class Claim:
    """A compares with B: a ratio of costs ``A ÷ B`` below ``limit``, or a difference of levels ``A − B`` above it."""

    number: int
    one: str
    other: str
    measure: str
    worlds: tuple[str, ...] = WORLDS
    limit: float = 1.0

    @property
    def text(self) -> str:
        """The claim in words."""
        if self.measure in COSTS:
            aim = "before" if self.limit == 1 else f"below {self.limit} of"
            return f"{self.measure}: `{self.one}` {aim} `{self.other}`"
        aim = "above" if self.limit == 0 else f"at most {-self.limit} below"
        return f"{self.measure}: `{self.one}` {aim} `{self.other}`"


CLAIMS = (
    *(Claim(1, "fedvs", other, "seconds", ("exponential",)) for other in ("wait", "fastest", "async")),
    Claim(4, "wait", "async", "plateau", limit=0.0),
    Claim(5, "wait", "fastest", "plateau", limit=0.0),
    Claim(6, "async", "wait", "seconds", ("outages",)),
    Claim(7, "vimadmm", "wait", "rounds"),
    Claim(8, "vimadmm", "fdml", "rounds"),
    Claim(9, "fedbcd", "wait", "rounds"),
    Claim(10, "c-vfl", "wait", "bytes", limit=0.1),
    Claim(11, "ef-vfl", "c-vfl", "bytes"),
    Claim(12, "bs-vfl", "fedbcd", "seconds", limit=0.52),
    Claim(13, "bs-vfl", "fedbcd", "plateau", limit=-0.01),
    Claim(14, "celu-vfl", "fedbcd", "seconds", ("shared", "lte")),
    Claim(15, "flex-vfl", "fedbcd", "seconds", ("phones",)),
    Claim(16, "laser-vfl", "wait", "plateau", limit=0.0),
    Claim(17, "laser-vfl", "wait", "answers", limit=0.0),
)


def gaps(frame: pd.DataFrame, claim: Claim, block: Block) -> pd.Series:
    """Return by how much each seed lies on the claimed side: above 0, it does; 0 where both miss the target.

    Logarithms of the limit's ratio to A ÷ B for costs; of levels, A − B less the limit.
    """
    if claim.measure not in COSTS:
        levels = table(frame, block, claim.measure)
        return levels.loc[claim.one] - levels.loc[claim.other] - claim.limit
    name = f"{claim.measure}_high"
    costs = table(frame, block, name)
    own = frame[(frame["data"] == block[0]) & (frame["world"] == block[1]) & (frame["network"] == "fair")]
    missed = own[(own["measure"] == name) & own["censored"]].groupby("seed")["protocol"].agg(set)
    both = [seed for seed, names in missed.items() if {claim.one, claim.other} <= {*map(str, names)}]
    found = np.log(claim.limit) - np.log(costs.loc[claim.one] / costs.loc[claim.other])
    found[both] = 0.0
    return found


def p_values(found: np.ndarray) -> np.ndarray:
    """Return one-sided p values (claims, 2) that the mean gap of each row (claims, seeds) is above, below 0 by chance.

    Source: Fisher's test of paired differences, whose signs are exchangeable where there is none.
    """

    def mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.mean(values, axis=axis)

    tests = [
        permutation_test(
            (found,), mean, permutation_type="samples", vectorized=True, axis=-1, n_resamples=FLIPS,
            alternative=side, rng=np.random.default_rng(SEED), batch=500,
        ).pvalue
        for side in ("greater", "less")
    ]  # fmt: skip
    return np.stack(tests, axis=-1)


def verdicts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per claim and block: number, claim, data, world, verdict, gap, its p value as corrected."""
    pairs = [(claim, block) for claim in CLAIMS for block in blocks(frame) if block[1] in claim.worlds]
    found = np.array([gaps(frame, claim, block).to_numpy(float) for claim, block in pairs])
    corrected = holm(p_values(found).ravel()).reshape(-1, 2)
    rows = []
    for (claim, block), own, (above, below) in zip(pairs, found, corrected, strict=True):
        side = HOLDS if above < LEVEL else FAILS if below < LEVEL else OPEN
        centre = own.mean()
        gap = claim.limit * np.exp(-centre) if claim.measure in COSTS else centre + claim.limit
        rows.append({
            "number": claim.number, "claim": claim.text, "data": block[0], "world": block[1],
            "verdict": side, "gap": float(gap), "p": float(min(above, below)),
        })  # fmt: skip
    return pd.DataFrame(rows)


def over_blocks(sides: pd.Series) -> str:
    """Return the verdict over blocks: one side if no block says the other."""
    there = {HOLDS, FAILS} & {*sides}
    return BOTH if len(there) == 2 else there.pop() if there else OPEN
