"""``vflsim trace --open``: hand a trace to ui.perfetto.dev, which reads it from this machine."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from vflsim.reporting.serving import ADDRESS, LocalHandler, LocalServer

VIEWER = "https://ui.perfetto.dev"
PORT = 9001
"""The only port from which the viewer may fetch."""


def served(trace: Path, port: int) -> LocalServer:
    """Make a server that gives the trace to the viewer once; its ``serve_forever`` returns after that.

    Raises ResultsError if the port is taken.
    """

    class Trace(LocalHandler):
        """Has the one file, for the viewer's origin."""

        def respond(self) -> None:
            """Send the file and end the server."""
            if self.path != f"/{trace.name}":
                return self.answer("no such page here", "text/plain", status=404)
            self.send_response(200)
            for name, value in self._permission().items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(trace.stat().st_size))
            self.end_headers()
            with open(trace, "rb") as file:
                shutil.copyfileobj(file, self.wfile)
            threading.Thread(target=self.server.shutdown).start()

        def do_OPTIONS(self) -> None:  # noqa: N802  the library's name
            """Let the viewer's page ask a machine in a private network."""
            if self.allowed():
                self.answer("", "text/plain", self._permission(), status=204)

        def _permission(self) -> dict[str, str]:
            return {"Access-Control-Allow-Origin": VIEWER, "Access-Control-Allow-Private-Network": "true"}

    return LocalServer(port, Trace, f"end the program that uses it: {VIEWER} fetches from port {PORT} alone")


def address(trace: Path, port: int) -> str:
    """Return the viewer's address with that of the trace."""
    return f"{VIEWER}/#!/?url=http://{ADDRESS}:{port}/{trace.name}"
