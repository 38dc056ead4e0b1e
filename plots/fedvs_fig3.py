"""FedVS Fig. 3: FedVS with several K, once where delays and once where computation takes most of a round."""

from vflsim.plotting.script import panels_main

if __name__ == "__main__":
    panels_main("fedvs_fig3", __doc__, columns=2)
