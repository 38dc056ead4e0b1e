"""What ``run.json`` says of a run: one file per block of fields."""
