"""Reads the progress of a job on this machine, as lists to plot."""
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
    """The state of a job, and its history in lists. The lists seconds, images_per_s and n_workers
    have one element for each point in time. The lists loss_steps and losses have one for each loss.
    A point covers one second at first. When the page of ps 0 is full with 512 points, later ones
    cover two seconds, then four, and so on."""
    # "no job yet", "starting", "training", "stopped" (resumes soon), "done", or "not reached", if
    # ps 0 does not answer.
    state: str
    step: int  # number of steps that are done
    train_steps: int  # number of all steps; 0: no job has begun
    workers: dict[int, str]  # index: "training", "missing", "joining", "left", ...
    at: float  # time of this object, in seconds since the cluster was made
    seconds: list[float]  # end of each point, in seconds since the cluster was made
    images_per_s: list[float]  # samples of all workers per second, since the previous point
    n_workers: list[int]  # number of workers in training when the point was read
    loss_steps: list[int]  # step of each loss
    losses: list[float]  # mean over the members that reported a loss for this step


def page(port: int) -> Optional[dict[str, Any]]:
    """Returns ps 0's status.json (docs/guide/monitoring.md), or None if ps 0 does not answer. Does
    not use urllib, which might send the request to a proxy."""
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
    """Collects a job's Progress. Its sources are the page of ps 0, which has the whole job in at
    most 512 points, and the output of workers: only there are the losses of the user's own
    programs."""

    def __init__(self, began: float) -> None:
        self._began = began  # seconds since 1970
        # Points: (end, step, loss that Weir's workers reported, images/s, n_workers).
        self._points: list[tuple[float, Optional[int], Optional[float], Optional[float], int]] = []
        self._printed: dict[int, tuple[float, int]] = {}  # step: sum and number of printed losses
        self._read: dict[str, int] = {}  # path of a log: number of bytes read so far
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
        before = math.inf  # end of the previous point of the page
        for unix_s, step, loss, speed in got["history"]:
            at = unix_s - self._began
            if not self._points or at > self._points[-1][0]:
                while self._points and self._points[-1][0] > before:
                    self._points.pop()  # this point is a part of the page's point, which has grown
                self._points.append((at, step, loss, speed, n_workers))
            before = at

    def read_summary(self, path: str) -> None:
        """Reads the job's last step from the file that ps 0 writes at its end. Without this file it
        changes nothing."""
        try:
            with open(path, encoding="utf-8") as f:
                self._end = json.load(f)["last_step"]
        except FileNotFoundError:
            pass

    def read_log(self, path: str) -> None:
        """Reads losses from new lines of a log, such as "step 12 loss 0.5". Does nothing if the
        file was removed."""
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
        """Returns all data so far. is_done: ps 0 has exited with 0, because the job is done."""
        told = {step: loss for _, step, loss, _, _ in self._points
                if step is not None and loss is not None}
        losses = sorted((told or {step: total / n for step, (total, n)
                                  in self._printed.items()}).items())
        speeds = [(at, speed, n) for at, _, _, speed, n in self._points if speed is not None]
        step = self._last.get("step") or 0
        train_steps = (self._last.get("job") or {}).get("train_steps", 0)
        if is_done:  # the job may have ended before its last planned step
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
