"""What all tests share."""

from hypothesis import settings

settings.register_profile("vflsim", deadline=None)  # how long an example takes is the machine's business
settings.load_profile("vflsim")
