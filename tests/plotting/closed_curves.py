"""Closed forms by hand: the table that stands beside results."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from vflsim.results import write_file


def write_curves(folder: Path, curves: list[tuple]) -> None:
    """Write (protocol, quantity, client, x, cdf[, cdf_upper]) as the results' closed forms."""
    columns = {name: [] for name in ("protocol", "quantity", "client", "x", "cdf", "cdf_upper")}
    for protocol, quantity, client, x, cdf, *upper in curves:
        columns["protocol"] += [protocol] * len(x)
        columns["quantity"] += [quantity] * len(x)
        columns["client"] += [client] * len(x)
        columns["x"] += np.asarray(x, float).tolist()
        columns["cdf"] += np.asarray(cdf, float).tolist()
        columns["cdf_upper"] += np.asarray(upper[0] if upper else cdf, float).tolist()
    table = pa.table(columns)
    write_file(folder / "closed_forms.parquet", table.set_column(2, "client", table["client"].cast(pa.int32())))
