"""The learning plane of Lagrange coded training (FedVS): sharing, computing on shares, and decoding."""
