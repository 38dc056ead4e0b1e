"""Statistics of results: means, intervals, quantiles, costs to targets."""
