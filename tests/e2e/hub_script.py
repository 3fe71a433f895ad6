"""Runs in a pod: both hubs' APIs over the bundled model, in both formats, and what they sent.

The hub is slow until SIGUSR1 comes. Port 8082 tells how many bytes of which file went out.
"""

from __future__ import annotations

import http.server
import json
import shutil
import signal
import sys
from pathlib import Path

import fla_to_pth
from hub_server import Fault, HubServer

MODEL = Path("/opt/rwkv/models/tiny-recall")
WEIGHTS = "model.safetensors"
PTH = "rwkv.pth"
SLOW = 60_000  # bytes a second, for the safetensors


def main() -> None:
    """Serve org/model and org/pth until killed, to whoever has the token of the first argument."""
    folder = Path("/tmp/pth")
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    fla_to_pth.write_pth(MODEL, folder / PTH)
    # Files are redirected to the port that engines may reach anywhere.
    with HubServer(8080, 443, "0.0.0.0") as hub:
        hub.token = sys.argv[1]
        hub.add("org/model", MODEL)
        hub.add("org/pth", folder)
        hub.faults.append(Fault("slow", WEIGHTS, value=SLOW))
        signal.signal(signal.SIGUSR1, lambda *_: hub.faults.clear())
        http.server.HTTPServer(("", 8082), teller(hub)).serve_forever()


def teller(hub: HubServer) -> type[http.server.BaseHTTPRequestHandler]:
    """Tells what went out so far."""

    class Teller(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = {
                "size": (MODEL / WEIGHTS).stat().st_size,
                "sent": hub.sent(WEIGHTS),
                "ranges": hub.ranges(WEIGHTS),
                "secrets": sorted(hub.secrets()),
            }
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *parts: object) -> None:
            """Say nothing."""

    return Teller


if __name__ == "__main__":
    main()
