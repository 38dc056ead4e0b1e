"""``python -m vflsim`` is the console script."""

from vflsim.cli import script

script()
