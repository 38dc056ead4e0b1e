"""The learning plane: data, models, batches and steps. It knows values, never time."""
