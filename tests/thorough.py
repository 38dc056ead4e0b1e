"""How much the tests try: little at each change, more with ``pytest --thorough``."""

from hypothesis import settings

HELP = "try 200 or more examples of each property, and every combination of parameters where pairs are tried otherwise"
FEW, MANY = 25, 200
"""Examples of a property at each change at most, and with ``--thorough`` at least."""

for _name, _count in (("quick", FEW), ("thorough", MANY)):
    settings.register_profile(_name, max_examples=_count, deadline=None)  # the machine decides how long one takes


def begin(thorough: bool) -> None:
    """Load the profile of hypothesis, before tests are imported."""
    settings.load_profile("thorough" if thorough else "quick")


def is_thorough() -> bool:
    return settings.get_current_profile_name() == "thorough"


def examples(wanted: int) -> int:
    """How many examples a property gets that was written for so many: not above FEW, or not below MANY."""
    return max(wanted, MANY) if is_thorough() else min(wanted, FEW)
