"""How a job of this machine has got on, as lists to be plotted."""
from __future__ import annotations

import dataclasses
import http.client
import json
import re
import time
from typing import Any, Optional

PAGE_TIMEOUT = 5  # seconds
LOSS = re.compile(rb"\bstep[ =:]+(\d+)\b[^\n]*?\bloss[ =:]+"
                  rb"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf))", re.I)


@dataclasses.dataclass
class Progress:
    """How a job stands, and its course. The lists of a kind have the same length: one element for
    each second (seconds, images_per_s, n_workers), or for each loss (loss_steps, losses)."""
    state: str  # "no job yet", "starting", "training", "stopped" (to go on soon), "done"; or
    # "not reached": ps 0 does not answer
    step: int  # how many are done,
    train_steps: int  # of how many; 0: there is no job yet
    workers: dict[int, str]  # by number: "training", "missing", "joining", "left", ...
    at: float  # seconds since the cluster was made, and so
    seconds: list[float]
    images_per_s: list[float]  # samples of all workers together, in the second before
    n_workers: list[int]  # in training then
    loss_steps: list[int]
    losses: list[float]  # the mean over those who said one of this step


def page(port: int) -> Optional[dict[str, Any]]:
    """ps 0's status.json (docs/monitoring.md); None: it does not answer. Not by urllib, which
    might ask a proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PAGE_TIMEOUT)
    try:
        connection.request("GET", "/status.json")
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


class Course:
    """Collects a job's Progress: from the page of ps 0, which has a point for each second of its
    life, and from what workers print, as the losses of programs of one's own come there alone."""

    def __init__(self, began: float) -> None:
        self._began = began  # seconds since 1970
        self._speeds: list[tuple[float, float, int]] = []
        self._told: dict[int, tuple[float, int]] = {}  # by Weir's workers
        self._printed: dict[int, tuple[float, int]] = {}  # by step: sum, and of how many
        self._read: dict[str, int] = {}  # of each log, so many bytes
        self._last: dict[str, Any] = {}

    def read_page(self, port: int) -> None:
        """What is new there; a server that is not there changes nothing."""
        got = page(port)
        if got is None:
            self._last["state"] = "not reached"
            return
        self._last = got
        n_workers = sum(m["state"] == "training" for m in got["members"])
        for unix_s, step, loss, speed in got["history"]:
            at = unix_s - self._began
            if self._speeds and at <= self._speeds[-1][0]:
                continue
            if speed is not None:
                self._speeds.append((at, speed, n_workers))
            if loss is not None and step is not None:
                self._told[step] = (loss, 1)

    def read_log(self, path: str) -> None:
        """Losses in lines that are new there, as "step 12 loss 0.5"."""
        with open(path, "rb") as f:
            f.seek(self._read.get(path, 0))
            text = f.read()
        text = text[:text.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(text)
        for step, loss in LOSS.findall(text):
            before, n = self._printed.get(int(step), (0.0, 0))
            self._printed[int(step)] = before + float(loss), n + 1

    def progress(self, is_done: bool) -> Progress:
        """All of it. is_done: the servers have ended as a job's end has them."""
        losses = sorted((self._told or self._printed).items())
        train_steps = (self._last.get("job") or {}).get("train_steps", 0)
        if is_done and train_steps == 0 and losses:  # it was over before its page said so much
            train_steps = losses[-1][0] + 1
        return Progress(
            state="done" if is_done else self._last.get("state", "no job yet"),
            step=train_steps if is_done else self._last.get("step") or 0, train_steps=train_steps,
            workers={m["index"]: "done" if is_done and m["state"] == "training" else m["state"]
                     for m in self._last.get("members", [])},
            at=time.time() - self._began,
            seconds=[at for at, _, _ in self._speeds],
            images_per_s=[speed for _, speed, _ in self._speeds],
            n_workers=[n for _, _, n in self._speeds],
            loss_steps=[step for step, _ in losses],
            losses=[total / n for _, (total, n) in losses])
