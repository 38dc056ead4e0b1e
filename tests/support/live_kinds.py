"""The kinds of protocols that run live."""

from protocols_by_kind import KINDS
from tiny_worlds import tiny

from vflsim.errors import ScenarioError
from vflsim.remote.party import refuse_unfit


def _fits(kind: str) -> bool:
    try:
        refuse_unfit(tiny({"only": KINDS[kind]}))
    except ScenarioError:
        return False
    return True


LIVE = [kind for kind in KINDS if _fits(kind)]
