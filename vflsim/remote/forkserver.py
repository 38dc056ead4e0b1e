"""What the process has imported from which clients of this machine are forked."""

import gc

import torch._dynamo

from vflsim.remote import client

__all__ = ["client", "torch"]  # the first step of an optimiser imports ``torch._dynamo``

gc.collect()
gc.freeze()  # a collection in a client would write to all these objects, and so copy the memory that clients share
