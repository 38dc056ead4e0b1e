"""What is common to the runs of a study: options, inputs, reuse of earlier runs, progress."""
