"""FedVS Fig. 4: FedVS with several T."""

from vflsim.plotting.script import panels_main

if __name__ == "__main__":
    panels_main("fedvs_fig4", __doc__, columns=1)
