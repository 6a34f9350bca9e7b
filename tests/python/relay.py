"""A relay between a server and its clients, as NAT and docker -p are."""
import contextlib
import socket
import threading

import harness


class Relay:
    """Listens at one address and forwards each connection to another; can cut all of them. While
    `open` is clear, it forwards nothing; what it has received is lost if it is cut then."""

    def __init__(self, to, at=(harness.LOOPBACK, 0)):
        self.to, self.pairs, self.lock = to, [], threading.Lock()
        self.open = threading.Event()
        self.open.set()
        self.listener = socket.create_server(at)
        self.address = "%s:%d" % self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.to)
            except OSError:
                return
            with self.lock:
                self.pairs.append((client, server))
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, a, b):
        try:
            while data := a.recv(1 << 16):
                self.open.wait()
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def inject(self, data, client):
        """Sends data to the server in the connection of that client, which the server names
        HOST:PORT."""
        with self.lock:
            (server,) = [s for _, s in self.pairs if "%s:%d" % s.getsockname() == client]
            server.sendall(data)

    def cut(self):
        with self.lock:
            for pair in self.pairs:
                for s in pair:
                    with contextlib.suppress(OSError):
                        s.shutdown(socket.SHUT_RDWR)
            self.pairs.clear()

    def close(self):
        self.listener.close()
        self.cut()
