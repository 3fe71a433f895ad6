"""What a pod's parent starts for vLLM where an `EngineNursery` has the real one at hand.

It asks for a fork that has these arguments, environment and outputs, and ends when that does.
Lives in a folder of its own that only the parent's PYTHONPATH holds.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main() -> None:
    """Ask, and wait."""
    wish = json.dumps({"argv": sys.argv, "env": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX) as nursery:
        nursery.connect(os.environ["ENGINE_NURSERY"])
        socket.send_fds(nursery, [len(wish).to_bytes(4, "big")], [1, 2])
        nursery.sendall(wish)
        nursery.recv(1)
    raise SystemExit("the forked engine has ended")


if __name__ == "__main__":
    main()
