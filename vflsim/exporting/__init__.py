"""Results in the trackers where people keep theirs: MLflow, TensorBoard, Weights & Biases, Trackio."""
