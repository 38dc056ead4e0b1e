"""What the process has imported from which those are forked that compute the slow figures."""

import gc

import sklearn.datasets
import sympy

from vflsim.exploring import slow_figures

__all__ = ["sklearn", "slow_figures", "sympy"]

gc.collect()
gc.freeze()  # a collection would write to all these objects, and so copy the memory that processes share
