#!/usr/bin/python3
"""The part of `scripts/try notebooks` that runs inside the fresh system, as root and in namespaces
of its own: starts JupyterHub, and uses it as two users do in browsers, through its HTTP API."""
import asyncio
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import uuid

import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

HUB = "http://127.0.0.1:8000"
LOG = "/var/log/jupyterhub.log"
STATE = "/opt/fakes/state"
CARDS = ["GPU-%s-0000-4000-8000-%012d" % (str(i) * 8, i) for i in (0, 1)]
CELL_S = 900
RESERVE = "import os, weir\ngpu = weir.reserve(%s)\nprint('pid', os.getpid())"

R_CELL = """library(weir)
gpu <- weir_reserve(memory_fraction = 0.4)
print(weir_devices())
member <- weir_open(train_steps = 20, batch_size = 8, optimizer = "sgd", learning_rate = 1)
weir_params(member, list(w = numeric(3)))
last <- weir_steps(member, function(step)
    weir_push(member, list(w = weir_values(member)$w - 1), samples = 8))
cat("after 20 steps", last$w)
"""


def say(text):
    print("    " + text, flush=True)


def until(what, check, seconds=60):
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, "not within %d s: %s" % (seconds, what)
        time.sleep(0.5)


def write_cards():
    """Writes the machine that the fakes of the driver show: two cards, which no process uses."""
    with open(STATE, "w", encoding="ascii") as f:
        for i, card in enumerate(CARDS):
            f.write("gpu uuid=%s pci=0000:%02x:00.0 name=NVIDIA_H200 cc=9.0 total=81559 used=500 "
                    "busy=0\n" % (card, 0x3a + i))


class User:
    """A user with a session at the hub, and the user's single-user server."""

    def __init__(self, name):
        self.name, self.session = name, requests.Session()
        page = self.session.post(HUB + "/hub/login", data={
            "username": name, "password": "secret of " + name}, timeout=60)
        assert page.ok and "login" not in page.url, (page.status_code, page.url)
        self.session.headers["Referer"] = HUB + "/hub/home"
        self.start_server()
        made = self.hub("post", "/tokens", json={})
        self.token = {"Authorization": "token " + made.json()["token"]}

    def hub(self, method, path, **kwargs):
        answer = self.session.request(method, HUB + "/hub/api/users/" + self.name + path,
                                      timeout=60, **kwargs)
        assert answer.ok, (method, path, answer.status_code, answer.text)
        return answer

    def start_server(self):
        self.hub("post", "/server")
        until("%s's server" % self.name, lambda: self.hub("get", "").json().get("server"), 120)

    def stop_server(self):
        self.hub("delete", "/server")
        until("the end of %s's server" % self.name,
              lambda: not self.hub("get", "").json()["servers"])

    def api(self, method, path, **kwargs):
        answer = requests.request(method, "%s/user/%s/api/%s" % (HUB, self.name, path),
                                  headers=self.token, timeout=120, **kwargs)
        assert answer.ok, (method, path, answer.status_code, answer.text)
        return answer

    async def kernel(self, spec="lab"):
        made = self.api("post", "kernels", json={"name": spec}).json()
        kernel = Kernel(self, made["id"])
        await kernel.connect()
        return kernel

    def kernels(self):
        return [k["id"] for k in self.api("get", "kernels").json()]


class Kernel:
    """A kernel, and the connection through which a browser uses it."""

    def __init__(self, user, number):
        self.user, self.id, self.socket = user, number, None

    async def connect(self):
        url = "%s/user/%s/api/kernels/%s/channels" % (HUB.replace("http", "ws"), self.user.name,
                                                      self.id)
        self.socket = await websocket_connect(HTTPRequest(
            url, headers=self.user.token, connect_timeout=CELL_S, request_timeout=CELL_S))

    def send(self, code):
        number = uuid.uuid4().hex
        self.socket.write_message(json.dumps({
            "header": {"msg_id": number, "msg_type": "execute_request", "username": "",
                       "session": "try", "version": "5.3"},
            "parent_header": {}, "metadata": {}, "channel": "shell", "content": {
                "code": code, "silent": False, "store_history": True, "user_expressions": {},
                "allow_stdin": False, "stop_on_error": True}}))
        return number

    async def lines(self, number):
        """Yields the texts that the cell prints, until it ends. Fails if the cell fails."""
        while True:
            text = await asyncio.wait_for(self.socket.read_message(), CELL_S)
            assert text is not None, "the connection to the kernel ended"
            message = json.loads(text)
            if message["parent_header"].get("msg_id") != number:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                yield content["text"]
            elif kind == "error":
                raise AssertionError("\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return

    async def run(self, code):
        number = self.send(code)
        return "".join([text async for text in self.lines(number)])

    async def reserve(self, arguments=""):
        """Calls weir.reserve(), and returns its text and the kernel's process."""
        said = await self.run(RESERVE % arguments)
        return said, int(re.search(r"^pid (\d+)", said, re.M).group(1))

    async def run_notebook(self, name):
        path = "/home/%s/%s" % (self.user.name, name)
        with open(path, encoding="utf-8") as f:
            cells = json.load(f)["cells"]
        said = [await self.run("".join(c["source"])) for c in cells if c["cell_type"] == "code"]
        return "".join(said)

    def end(self):
        self.user.api("delete", "kernels/" + self.id)


def holders(user="anna"):
    """Returns the reservations of each card, as another user's worker lists them."""
    listed = subprocess.run(["runuser", "-u", user, "--", "env", "LD_LIBRARY_PATH=/opt/fakes",
                             "WEIR_FAKE_GPUS=" + STATE, "weir-worker", "--list_devices=json"],
                            stdout=subprocess.PIPE, check=True)
    return {d["uuid"]: [(r["user"], r["pid"], r["memory_fraction"]) for r in d["reservations"]]
            for d in json.loads(listed.stdout)["devices"] if d["device_type"] == "GPU"}


def expect(what, got, want):
    assert got == want, "%s: %s, expected %s" % (what, got, want)


async def free_within(what, seconds=60):
    deadline = time.monotonic() + seconds
    while any(holders().values()):
        assert time.monotonic() < deadline, "%s: %s" % (what, holders())
        await asyncio.sleep(1)
    say(what + ": both cards are free")


async def notebooks_run(anna, ben):
    """Runs both notebooks at the same time, and looks meanwhile at the cards."""
    first, second = await anna.kernel(), await ben.kernel()
    said, pid = await second.reserve()
    assert "reserved: GPU" in said, said
    torch = asyncio.ensure_future(first.run_notebook("shared_gpu.ipynb"))
    loop = asyncio.ensure_future(second.run_notebook("own_loop.ipynb"))
    seen = {}
    while not (torch.done() and loop.done()):
        seen.update({user: (card, held, part) for card, found in holders().items()
                     for user, held, part in found})
        await asyncio.sleep(1)
    said = await torch
    assert "reserved: 0.4 of the memory of GPU" in said, said
    assert re.search(r"test accuracy 0\.[6-9]", said), said
    assert "no gap, no overlap" in await loop
    expect("users who held cards", sorted(seen), ["anna", "ben"])
    assert seen["anna"][0] != seen["ben"][0], seen
    expect("part of anna's kernel, and ben's kernel", (seen["anna"][2], seen["ben"][1:]),
           (0.4, (pid, None)))
    say("both notebooks ended; meanwhile %s" % ", ".join(
        "%s held %s of %s" % (user, part or "all", card[:12])
        for user, (card, _, part) in seen.items()))
    first.end()
    second.end()
    await free_within("after the end of both kernels")


async def second_user_waits(anna, ben):
    """Ben finds no card, reads who holds them, waits, and gets the card of a killed kernel."""
    both, other = await anna.kernel(), await ben.kernel()
    said, pid = await both.reserve("n=2")
    expect("cards of anna's kernel", said.count("reserved: GPU"), 2)
    said, _ = await other.reserve()
    holder = (r"GPU %d: process %d has reserved it \(python3? of anna, "
              r"since \d{4}-\d\d-\d\d \d\d:\d\d\)")
    for i in (0, 1):
        assert re.search(holder % (i, pid), said), said
    assert "computing on the CPU" in said, said
    say(said.splitlines()[0])
    said = await other.run("print(weir.devices())")
    expect("holders in weir.devices()", said.count("of anna (process %d) has reserved it" % pid), 2)
    number, killed, texts = other.send(RESERVE % "wait=120"), False, []
    async for text in other.lines(number):
        texts.append(text)
        if "waiting for 1 GPU" in text and not killed:
            os.kill(pid, signal.SIGKILL)
            killed = True
    assert killed and "reserved: GPU 0" in "".join(texts), texts
    say("ben's kernel waited, and has the card of anna's kernel, which was killed by kill -9")
    await restarted_kernel_frees(anna, ben, both, other)


async def restarted_kernel_frees(anna, ben, both, other):
    ben.api("post", "kernels/%s/restart" % other.id)
    await asyncio.sleep(1)
    until("the restarted kernel", lambda: not any(holders().values()))
    say("a restarted kernel holds no card")
    other.end()
    if both.id in anna.kernels():  # the server starts a killed kernel again
        await both.connect()
        await both.run("pass")  # the server cannot end a kernel that is not ready
        both.end()


async def fractions_share_a_card(anna, ben):
    kernels = [await user.kernel() for user in (anna, ben, ben, anna)]
    _, pid = await kernels[3].reserve()
    for kernel in kernels[:2]:
        said, _ = await kernel.reserve("memory_fraction=0.4")
        assert "reserved: 0.4 of the memory of GPU 1" in said, said
    said, _ = await kernels[2].reserve("memory_fraction=0.4")
    assert "so 0.4 of it does not fit" in said and "of ben" in said, said
    parts = holders()
    expect("parts of the second card", sorted(r[0] for r in parts[CARDS[1]]), ["anna", "ben"])
    expect("holder of the first card", parts[CARDS[0]], [("anna", pid, None)])
    say("two kernels share a card, and a third one finds no room")
    for kernel in kernels:
        kernel.end()
    await free_within("after the end of four kernels")


async def idle_kernel_is_culled(ben):
    ben.stop_server()
    folder = pathlib.Path("/home/ben/.jupyter")
    folder.mkdir(exist_ok=True)
    (folder / "jupyter_notebook_config.py").write_text(
        "c.MappingKernelManager.cull_idle_timeout = 10\nc.MappingKernelManager.cull_interval = 2\n")
    ben.start_server()
    kernel = await ben.kernel()
    said, pid = await kernel.reserve()
    assert "reserved: GPU 0" in said, said
    expect("holders", [h[:2] for h in holders()[CARDS[0]]], [("ben", pid)])
    await free_within("after ben's kernel was idle for 10 s and was culled", 90)
    expect("kernels of ben", ben.kernels(), [])


async def r_kernel_runs(anna):
    kernel = await anna.kernel("ir")
    said = await kernel.run(R_CELL)
    assert "reserved: 0.4 of the memory of GPU 0" in said, said
    assert re.search(r"R of anna \(process \d+\) has reserved 0.4 of the memory since", said), said
    assert "after 20 steps 1 1 1" in said, said
    expect("holder", [(r[0], r[2]) for r in holders()[CARDS[0]]], [("anna", 0.4)])
    say("a kernel of R holds 0.4 of a card, and has trained")
    kernel.end()
    await free_within("after the end of R's kernel")


async def main():
    anna, ben = User("anna"), User("ben")
    say("anna and ben are logged in, and their servers run")
    await notebooks_run(anna, ben)
    await second_user_waits(anna, ben)
    await fractions_share_a_card(anna, ben)
    await r_kernel_runs(anna)
    await idle_kernel_is_culled(ben)


def is_up():
    try:
        return requests.get(HUB + "/hub/api", timeout=5).ok
    except requests.ConnectionError:
        return False


def run():
    write_cards()
    os.makedirs("/var/lib/jupyterhub", exist_ok=True)
    with open(LOG, "w", encoding="utf-8") as log:
        hub = subprocess.Popen(["jupyterhub", "-f", "/etc/jupyterhub/jupyterhub_config.py"],
                               cwd="/var/lib/jupyterhub", stdout=log, stderr=log)
    try:
        until("an answer of the hub", lambda: is_up() or hub.poll() is not None, 120)
        asyncio.run(main())
    except BaseException:
        with open(LOG, encoding="utf-8") as log:
            sys.stdout.writelines(log.readlines()[-40:])
        raise
    finally:
        hub.kill()  # this script's end ends the namespace, and all processes in it


run()
