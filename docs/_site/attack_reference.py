"""The page of the attacks of ``vflsim evaluate``, from their classes: what each does, and its options."""

from __future__ import annotations

from scenario_reference import described, plain

from vflsim.attacks import ATTACKS

FIRST = """\
`vflsim evaluate RESULTS --attack KIND --set KIND.OPTION=VALUE` attacks finished runs. An option that is a list takes
several values, `--set pgd.omega=1,2`. [Attacks, noise and blinding](../privacy.md) says what the results mean.
"""


def attacks() -> str:
    """Write the page."""
    page = ["# Attacks", FIRST]
    for kind, attack in ATTACKS.items():
        page += [f"## {kind}", *described(attack, ("option", "type and unit", "default", "meaning"))]
        page.append(f"Measures: {plain(attack.note)}.")
    return "\n\n".join(page) + "\n"
