"""Pages of notebooks: their text, code and kept outputs as Markdown."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def notebook(file: Path) -> str:
    """Write the page of a notebook."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell)) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data:
            png = "".join(data["image/png"]).strip()
            yield f'<img alt="The figure of the cell above" src="data:image/png;base64,{png}">'
        elif "text/html" in data:
            yield f'<div class="output" markdown="0">{"".join(data["text/html"])}</div>'
        else:
            plain = "".join(output.get("text", data.get("text/plain", "")))
            yield f"<pre><code>{html.escape(plain)}</code></pre>"
