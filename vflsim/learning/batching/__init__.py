"""Many clients at the price of one: parameters side by side, and one tensor call for all that is alike."""
