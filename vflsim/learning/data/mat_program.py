"""Reads a MATLAB file from the standard input: a program of its own, because SciPy crashes on some damaged files.

``python mat_program.py BYTES SECONDS FEATURES LABELS...`` writes a line of JSON to the standard output, then arrays in
NPY format: the cells of the variable FEATURES, if it is a cell array, and the first of the LABELS that is there. The
line is ``{"cells": n or null, "label": name}``, or ``{"error": sentence}``. Nothing is pickled. It may
take this many bytes of memory and seconds of the processor.
"""

import contextlib
import json
import signal
import sys
from typing import Any, cast

import numpy as np
from scipy.io import loadmat


def main(most_bytes: str, seconds: str, features: str, *labels: str) -> None:
    """Read, and write what was found."""
    with contextlib.suppress(ImportError, ValueError):  # other systems; a lower limit already
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (int(most_bytes), int(most_bytes)))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))  # SIGXCPU, then SIGKILL
    try:
        variables = loadmat(cast(Any, sys.stdin.buffer), variable_names=[features, *labels])
        label = next((name for name in labels if name in variables), labels[0])
        if missing := [name for name in (features, label) if name not in variables]:
            return _refuse(f"has no variable {missing[0]!r}")
        whole = np.asarray(variables[features])
        is_cells = whole.dtype == object
        arrays = [np.asarray(each) for each in (*(whole.ravel() if is_cells else ()), variables[label])]
    except NotImplementedError:  # what SciPy says of HDF5
        return _refuse("cannot be read: it is of MATLAB's version 7.3 (HDF5)")
    except MemoryError:
        return _refuse(f"cannot be read: it would need more than {int(most_bytes):,} bytes of memory")
    except BaseException as error:  # SciPy raises almost any type on damaged bytes
        return _refuse(f"cannot be read: {error}")
    for place, each in enumerate(arrays, start=1):
        if each.dtype.hasobject or each.dtype.names is not None:
            what = f"variable {label!r}" if place == len(arrays) else f"view {place}"
            return _refuse(f"{what} is no matrix of numbers")
    _say({"cells": len(whole.ravel()) if is_cells else None, "label": label})
    for each in arrays:
        np.lib.format.write_array(_Pipe, each, allow_pickle=False)
    sys.stdout.flush()


class _Pipe:
    """The standard output, which NumPy must not take for a file: it could not seek in it."""

    write = staticmethod(sys.stdout.buffer.write)


def _refuse(sentence: str) -> None:
    _say({"error": " ".join(sentence.split())})


def _say(what: object) -> None:
    sys.stdout.buffer.write(json.dumps(what).encode() + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(*sys.argv[1:])
