"""Common parts of the runs of a study: options, inputs, reuse of earlier runs, progress."""
