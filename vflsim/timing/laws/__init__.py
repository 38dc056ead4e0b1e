"""Laws of times, whatever they are the times of: on a grid, as order statistics, their tails."""
