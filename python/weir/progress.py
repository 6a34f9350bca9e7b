"""The course of a job on this machine, as lists to plot."""
from __future__ import annotations

import dataclasses
import http.client
import json
import math
import re
import time
from typing import Any, Optional

PAGE_TIMEOUT = 5  # seconds
LOSS = re.compile(rb"\bstep[ =:]+(\d+)\b[^\n]*?\bloss[ =:]+"
                  rb"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf))", re.I)


@dataclasses.dataclass
class Progress:
    """How a job stands, and its course. The lists of a kind have the same length: one element for
    each point (seconds, images_per_s, n_workers), or for each loss (loss_steps, losses). A point is
    a second; when a job is 512 points long, its next ones are of two seconds, then of four, ..."""
    state: str  # "no job yet", "starting", "training", "stopped" (resumes soon), "done"; or
    # "not reached": ps 0 does not answer
    step: int  # how many are done,
    train_steps: int  # of how many; 0: there is no job yet
    workers: dict[int, str]  # by number: "training", "missing", "joining", "left", ...
    at: float  # seconds since the cluster was made, and so
    seconds: list[float]
    images_per_s: list[float]  # samples of all workers together, since the point before
    n_workers: list[int]  # in training when the point was read
    loss_steps: list[int]
    losses: list[float]  # mean over the members that reported this step


def page(port: int) -> Optional[dict[str, Any]]:
    """ps 0's status.json (docs/guide/monitoring.md); None: it does not answer. Not by urllib, which
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
    """Collects a job's Progress: from the page of ps 0, which has the whole job in at most 512
    points, and from the output of workers, which is the only place of losses of own programs."""

    def __init__(self, began: float) -> None:
        self._began = began  # seconds since 1970
        # End of the point, step, loss reported by Weir's workers, images/s, n_workers.
        self._points: list[tuple[float, Optional[int], Optional[float], Optional[float], int]] = []
        self._printed: dict[int, tuple[float, int]] = {}  # by step: sum, and of how many
        self._read: dict[str, int] = {}  # of each log, so many bytes
        self._last: dict[str, Any] = {}
        self._end: Optional[int] = None  # the job's last step

    def read_page(self, port: int) -> None:
        """Reads new points. If the server cannot be reached, nothing changes."""
        got = page(port)
        if got is None:
            self._last["state"] = "not reached"
            return
        self._last = got
        n_workers = sum(m["state"] == "training" for m in got["members"])
        before = math.inf  # the end of the one before it; the first does not grow
        for unix_s, step, loss, speed in got["history"]:
            at = unix_s - self._began
            if not self._points or at > self._points[-1][0]:
                while self._points and self._points[-1][0] > before:
                    self._points.pop()  # has grown to this one
                self._points.append((at, step, loss, speed, n_workers))
            before = at

    def read_summary(self, path: str) -> None:
        """Where the job has ended, of the file that ps 0 leaves; one that is not there changes
        nothing."""
        try:
            with open(path, encoding="utf-8") as f:
                self._end = json.load(f)["last_step"]
        except FileNotFoundError:
            pass

    def read_log(self, path: str) -> None:
        """Losses in lines that are new there, as "step 12 loss 0.5"; a file that is gone has none.
        """
        try:
            with open(path, "rb") as f:
                f.seek(self._read.get(path, 0))
                text = f.read()
        except FileNotFoundError:
            return
        text = text[:text.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(text)
        for step, loss in LOSS.findall(text):
            before, n = self._printed.get(int(step), (0.0, 0))
            self._printed[int(step)] = before + float(loss), n + 1

    def progress(self, is_done: bool) -> Progress:
        """All of it. is_done: the servers have ended as a job's end has them."""
        told = {step: loss for _, step, loss, _, _ in self._points
                if step is not None and loss is not None}
        losses = sorted((told or {step: total / n for step, (total, n)
                                  in self._printed.items()}).items())
        speeds = [(at, speed, n) for at, _, _, speed, n in self._points if speed is not None]
        step = self._last.get("step") or 0
        train_steps = (self._last.get("job") or {}).get("train_steps", 0)
        if is_done:  # maybe early
            step = train_steps = step if self._end is None else self._end
        return Progress(
            state="done" if is_done else self._last.get("state", "no job yet"),
            step=step, train_steps=train_steps,
            workers={m["index"]: "done" if is_done and m["state"] == "training" else m["state"]
                     for m in self._last.get("members", [])},
            at=time.time() - self._began,
            seconds=[at for at, _, _ in speeds],
            images_per_s=[speed for _, speed, _ in speeds],
            n_workers=[n for _, _, n in speeds],
            loss_steps=[step for step, _ in losses],
            losses=[loss for _, loss in losses])
