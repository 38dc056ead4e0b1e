"""The published claims that the study of orderings tests, and what came of each: see docs/orderings-plan.md."""

from dataclasses import dataclass
from functools import cache, partial

import pandas as pd
from orderings_estimates import COSTS, DATA, WORLDS, Block, blocks, estimates, of

from vflsim.results.statistics.estimates import Estimate, SeedSample, paired
from vflsim.results.statistics.pairs import ratio


@dataclass(frozen=True)
class Claim:
    """A compares with B: a ratio of costs ``A ÷ B`` below ``limit``, or a difference of levels ``A − B`` above it."""

    number: int
    one: str
    other: str
    measure: str
    worlds: tuple[str, ...] = WORLDS
    data: tuple[str, ...] = DATA
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
    *(
        Claim(1, "fedvs", other, "seconds", ("exponential",), ("fashion_mnist", "handwritten"))
        for other in ("wait", "fastest", "async")
    ),
    *(Claim(2, one, "fedvs", "seconds", ("exponential",), ("credit",)) for one in ("async", "fastest")),
    *(Claim(3, "fedvs", other, "plateau", ("exponential",), ("credit",), 0.0) for other in ("async", "fastest")),
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

HOLDS, FAILS, OPEN = "holds", "fails", "cannot be told"


def verdict(
    frame: pd.DataFrame, claim: Claim, block: Block, found: dict[str, Estimate] | None = None
) -> tuple[str, str]:
    """Return what came of a claim in a block, and the number it rests on; ``found`` are the block's estimates."""
    found = estimates(frame, block, _measure_of(claim)) if found is None else found
    if claim.one not in found or claim.other not in found:
        return OPEN, "failed"
    return (_of_costs if claim.measure in COSTS else _of_levels)(frame, claim, block, found)


def _measure_of(claim: Claim) -> str:
    return COSTS.get(claim.measure, claim.measure)


def _of_costs(frame: pd.DataFrame, claim: Claim, block: Block, found: dict[str, Estimate]) -> tuple[str, str]:
    one, other = found[claim.one], found[claim.other]
    if one.censored and other.censored:
        return OPEN, "—"
    costs = of(frame, block, COSTS[claim.measure])
    its = ratio(costs.assign(lower=costs["value"]), claim.other, claim.one)  # claim.one ÷ claim.other
    assert its is not None
    if its.bound == "exact":
        side = HOLDS if its.high < claim.limit else FAILS if its.low > claim.limit else OPEN
    elif its.bound == "most":  # B did not always reach the target: A ÷ B is at most this
        side = HOLDS if its.mean < claim.limit or (claim.limit == 1 and other.reached == 0) else OPEN
    else:
        side = FAILS if its.mean > claim.limit or (claim.limit == 1 and one.reached == 0) else OPEN
    return side, str(its)


def _of_levels(frame: pd.DataFrame, claim: Claim, block: Block, _: dict[str, Estimate]) -> tuple[str, str]:
    rows = of(frame, block, claim.measure)
    own, others = (rows[rows["protocol"] == name].set_index("seed")["value"] for name in (claim.one, claim.other))
    seeds = own.index.intersection(others.index)
    gap = paired(SeedSample.exact(own[seeds].to_dict()), SeedSample.exact(others[seeds].to_dict()))
    side = HOLDS if gap.low > claim.limit else FAILS if gap.high < claim.limit else OPEN
    return side, f"{gap.mean:+.3f} ({gap.low:+.3f} … {gap.high:+.3f})"


def verdicts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per claim and block: number, claim, data, world, verdict, found."""
    found = cache(partial(estimates, frame))  # claims share blocks and measures
    rows = [
        {"number": claim.number, "claim": claim.text, "data": block[0], "world": block[1]}
        | dict(zip(("verdict", "found"), verdict(frame, claim, block, found(block, _measure_of(claim))), strict=True))
        for claim in CLAIMS
        for block in blocks(frame)
        if block[0] in claim.data and block[1] in claim.worlds
    ]
    return pd.DataFrame(rows)


def over_blocks(sides: pd.Series) -> str:
    """Return the verdict over blocks: one that is the same in all, else mixed."""
    kinds = set(sides)
    return kinds.pop() if len(kinds) == 1 else "mixed"
