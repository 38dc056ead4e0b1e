"""Work as operations with promised values, and the executors that decide when it is computed."""
