"""The threads between the engine and the API process."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

from rwkv_server.states.connector.sender import Sender


def test_copies_end_while_the_api_process_doesnt_listen(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        sender = Sender(tmp_path / "socket")
        tokens = list(range(100_000))  # more than a socket takes before it is read
        copied = threading.Event()
        sender.put(lambda: sender.send({"id": "first", "tokens": tokens}))
        sender.put(copied.set)
        sender.put(lambda: sender.send({"id": "last"}))
        assert copied.wait(timeout=5)
        with listener.accept()[0] as connection, connection.makefile() as lines:
            first, last = json.loads(lines.readline()), json.loads(lines.readline())
        assert (first["id"], len(first["tokens"]), last["id"]) == ("first", len(tokens), "last")
        sender.close()
