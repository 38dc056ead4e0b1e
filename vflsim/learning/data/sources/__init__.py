"""Readers of data files: one module per format, all of them handing over ``RawData``."""
