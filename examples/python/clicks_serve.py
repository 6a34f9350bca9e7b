"""Serves scores of clicks_weir.py over HTTP, from the newest checkpoint of the job, which may still
run (docs/guide/tables.md). It calls no server of the job: weirctl export reads the folder.
    python3 clicks_serve.py saved --port=8000 &
    curl -d '{"keys": [26 numbers], "dense": [13 numbers]}' http://localhost:8000
The answer has the score, the step of the rows and parameters, and for each key the step that
changed its row last; 0: the key has no row."""
import argparse
import array
import http.server
import json
import os
import re
import subprocess
import tempfile
import threading

import torch
import weir
import weir.rows
from clicks import DIM, Net
from torch import nn

REBASE = 3  # exit code of weirctl export
SECONDS = 2  # between two looks for a checkpoint
N_KEYS, N_DENSE = 26, 13  # numbers of a question
PATCHES = 20  # a lookup searches each patch, so after this number the program reads all rows again


def numbers_of(question, name, n, kinds):
    """Returns the n numbers of a question that have this name."""
    found = question.get(name) if isinstance(question, dict) else None
    if not isinstance(found, list) or len(found) != n or not all(
            isinstance(number, kinds) for number in found):
        raise ValueError('"%s" must be a list of %d %snumbers' % (
            name, n, "whole " if kinds is int else ""))
    return found


class Lookup(nn.Module):
    """Returns the row of each key."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, keys):
        found, _ = self.rows.lookup("keys", keys)
        return torch.frombuffer(found, dtype=torch.float32).view(*keys.shape, DIM)


class Scores:
    """A network with the rows and parameters of one step, which never change."""

    def __init__(self, rows):
        self.rows, self.net = rows, Net(Lookup(rows))
        self.net.load_state_dict({name: torch.tensor(values.tolist())
                                  for name, values in rows.tensors.items()})

    def answer(self, question):
        keys = array.array("Q", [key % 2**64 for key in numbers_of(question, "keys", N_KEYS, int)])
        dense = torch.tensor([numbers_of(question, "dense", N_DENSE, (int, float))],
                             dtype=torch.float32)
        with torch.no_grad():
            score = self.net(torch.frombuffer(keys, dtype=torch.int64)[None], dense).sigmoid()
        return {"score": score.item(), "step": self.rows.step,
                "last_steps": self.rows.lookup("keys", keys)[1].tolist()}


class Follower(threading.Thread):
    """Keeps `now` at the scores of the folder's newest checkpoint. A request uses the object that
    it has found there, also while the next one is made. After an error it tries again."""

    def __init__(self, folder, path):
        super().__init__(daemon=True)
        self.folder, self.path, self.now, self.said = folder, path, None, None

    def run(self):
        rows, wait = None, threading.Event()
        while True:
            try:
                rows = self.look(rows)
            except (weir.Error, OSError, ImportError, LookupError, ValueError, RuntimeError) as e:
                self.say("%s: %s" % (type(e).__name__, e))
            wait.wait(SECONDS)

    def say(self, line):
        """Prints a line, unless it is the last one again."""
        if line != self.said:
            print(line, flush=True)
        self.said = line

    def export(self, *since):
        """Returns the exit code of weirctl export."""
        done = subprocess.run([weir.program("weirctl"), "--checkpoint_dir=" + self.folder,
                               "--output=" + self.path, "--quiet", *since, "export"], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.stderr or done.returncode:  # after success there may be a warning
            # Without its time, a line is the same if the next look fails in the same way.
            self.say(re.sub("^[A-Z] [0-9:.]+ ", "", done.stderr.strip(), flags=re.MULTILINE) or
                     "weirctl export: exit code %d" % done.returncode)
        return done.returncode

    def look(self, rows):
        """Looks for a checkpoint after `rows`; None: for any one. Returns its rows, or `rows` if
        the folder has no later one; None: the next look begins with all rows again."""
        code = self.export(*(["--since=" + rows.id] if rows else []))
        if code:
            return None if code == REBASE else rows
        try:
            rows = rows.apply(self.path) if rows else weir.rows.read(self.path)
        except weir.rows.Rebase as e:
            self.say(str(e))
            return None
        self.now = Scores(rows)
        self.say("serves step %d after %d patches" % (rows.step, rows.n_patches))
        return rows if rows.n_patches < PATCHES else None


class Handler(http.server.BaseHTTPRequestHandler):
    follower = None

    def do_POST(self):
        scores, code = self.follower.now, 200
        try:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = scores.answer(question) if scores else {"error": "no checkpoint yet"}
            code = 200 if scores else 503
        except (LookupError, ValueError, TypeError, RuntimeError, ArithmeticError) as e:
            code, answer = 400, {"error": str(e)}
        made = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(made)))
        self.end_headers()
        self.wfile.write(made)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="the checkpoint_dir of the job's servers")
    parser.add_argument("--port", type=int, default=8000, help="0: any free port")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        Handler.follower = Follower(flags.folder, os.path.join(own, "export.safetensors"))
        Handler.follower.start()
        server = http.server.ThreadingHTTPServer(("localhost", flags.port), Handler)
        print("listens at http://localhost:%d" % server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
