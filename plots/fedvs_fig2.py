"""FedVS Fig. 2: all protocols on the six data sets, accuracy against virtual time."""

from vflsim.plotting.script import panels_main

if __name__ == "__main__":
    panels_main("fedvs_fig2", __doc__, columns=3)
