"""What runs are worth, as folds over one stream of spans: whoever plays a run, events, arrays or a live one."""
