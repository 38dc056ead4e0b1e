"""Figures of papers, with several results side by side: ``python plots/panels.py fedvs_fig2 RESULTS …``."""

from vflsim.plotting.script import panels_main

FIGURES = {
    "fedvs_fig1": ("waiting for, ignoring and not waiting for stragglers, under three aggregates", 3),
    "fedvs_fig2": ("all protocols on the six data sets, accuracy against virtual time", 3),
    "fedvs_fig3": ("FedVS with several K, once where delays and once where computation takes most of a round", 2),
    "fedvs_fig4": ("FedVS with several T", 1),
    "vafl_fig2": ("VAFL's federated logistic regression: accuracy against virtual time on three data sets", 3),
}
"""What each shows, and panels per row."""

if __name__ == "__main__":
    panels_main(__doc__, FIGURES)
