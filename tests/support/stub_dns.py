"""A DNS server with the answers that HAProxy's resolvers ask for: A records, or no such name."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from typing import cast

A_RECORD = 1
NO_SUCH_NAME = 3


class StubDNS(asyncio.DatagramProtocol):
    """Answers from a table that may change at any time; can be told to be silent."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.silent = False
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self, host: str, port: int) -> None:
        """Open the port."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))

    def stop(self) -> None:
        """Close the port."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answers."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        """Answer one question."""
        if not self.silent and self._transport is not None:
            self._transport.sendto(answer(data, self.addresses), addr)


def answer(query: bytes, addresses: dict[str, str]) -> bytes:
    """The answer to a query with one question."""
    end = 12
    labels = []
    while query[end]:
        labels.append(query[end + 1 : end + 1 + query[end]].decode())
        end += 1 + query[end]
    question = query[12 : end + 5]
    (kind,) = struct.unpack("!H", question[-4:-2])
    address = addresses.get(".".join(labels).lower())
    code = 0 if address else NO_SUCH_NAME
    records = b""
    if address and kind == A_RECORD:
        # A pointer to the question's name, type A, class IN, 5 seconds, 4 bytes.
        records = struct.pack("!HHHIH", 0xC00C, 1, 1, 5, 4) + ipaddress.ip_address(address).packed
    flags = 0x8400 | code
    return query[:2] + struct.pack("!HHHHH", flags, 1, bool(records), 0, 0) + question + records
