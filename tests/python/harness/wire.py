"""Helpers for plain clients, which use gRPC's Python module, and the checksum of their payloads."""
import atexit
import os
import select
import sys
import time

from .settings import PATIENCE


def join(call, request, seconds=20):
    """Sends the Join of a plain client, and repeats it while the answer is RETRY, as the protocol
    demands; returns the reply."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        reply = call(request, timeout=10 * PATIENCE)
        if reply.answer != type(reply).RETRY or time.monotonic() > deadline:
            return reply
        select.select([], [], [], 0.01)


def _crc_table():
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
        table.append(i)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xffffffff


_kept = []


def keep(channel):
    """Keeps a gRPC channel, which the test closes, from being freed: gRPC's Python module (Debian's
    1.51) was seen to hang between two tests, while it freed the objects of the first."""
    _kept.append(channel)
    return channel


def leave(status):
    """Exits the program. gRPC's Python module may wait for ever for a thread of its own as the
    interpreter exits (seen with Debian's 1.51), so this function skips the interpreter's exit in a
    program that has loaded the module."""
    sys.stdout.flush()
    sys.stderr.flush()
    if "grpc" in sys.modules:
        atexit._run_exitfuncs()
        os._exit(status)
    sys.exit(status)
