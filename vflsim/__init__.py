"""vflsim: which vertical-federated-learning protocol learns fastest, under identical timing."""
