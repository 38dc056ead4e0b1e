"""FedVS Fig. 1: waiting for, ignoring and not waiting for stragglers, under three aggregates."""

from vflsim.plotting.script import panels_main

if __name__ == "__main__":
    panels_main("fedvs_fig1", __doc__, columns=3)
