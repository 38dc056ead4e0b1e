"""``vflsim explore``: a page on this machine where one plays with time."""
