#!/usr/bin/python3
"""A host of libweir with TLS connections of its own, for test_libweir_tls.py.

    tls_host.py LIBRARY OWN_ADDRESS PATTERN NAME=VALUE...

It connects to OWN_ADDRESS by itself, with the member's certificate: before it loads the library,
beside the member once a line of the library has PATTERN, and after it has unloaded the library."""
import _ctypes
import ctypes
import re
import socket
import ssl
import sys

import ctypes_trainer

LINE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


def connect(when, address, settings):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(settings["tls_ca"])
    context.load_cert_chain(settings["tls_cert"], settings["tls_key"])
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as plain:
        with context.wrap_socket(plain) as link:
            print("own connection %s: %s" % (when, link.version()), flush=True)


def check(code):
    if code < 0:
        sys.exit("error %d" % code)


def join(lib, pattern, settings):
    """Opens a member that requests its first step until a line has the pattern."""
    seen = []

    @LINE
    def line(_, level, text):
        print("line %d: %s" % (level, text.decode()), flush=True)
        if re.search(pattern, text.decode()):
            seen.append(text)
    w, step = ctypes.c_void_p(), ctypes_trainer.Step()
    lib.weir_log(line, None)
    check(lib.weir_open(ctypes.byref(w)))
    for name, value in settings.items():
        check(lib.weir_set(w, name.encode(), value.encode()))
    check(lib.weir_param(w, b"w", 0, 1, (ctypes.c_int64 * 1)(4), None))
    while not seen:
        check(lib.weir_next(w, ctypes.c_int64(100), ctypes.byref(step)))
    return w, line


def main():
    path, address, pattern = sys.argv[1:4]
    settings = dict(s.split("=", 1) for s in sys.argv[4:])
    connect("before", address, settings)
    lib = ctypes_trainer.load(path)
    w, _line = join(lib, pattern, settings)
    connect("beside", address, settings)
    lib.weir_cancel(w)
    lib.weir_close(w)
    lib.weir_log(None, None)
    _ctypes.dlclose(lib._handle)
    with open("/proc/self/maps", encoding="utf-8") as f:
        print("unloaded: %s" % ("libweir" not in f.read()))
    connect("after", address, settings)


if __name__ == "__main__":
    main()
