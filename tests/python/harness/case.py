"""The base class of the tests."""
import faulthandler
import os
import shutil
import signal
import tempfile
import unittest

from .data import make_data
from .files import read_json, write_file
from .job import Job
from .process import Process, check_output, run
from .settings import PATIENCE, models_dir, program, source


class Test(unittest.TestCase):
    """Base of the tests: processes that are cleaned up, a scratch folder, synthetic data."""
    SECONDS = 100  # a test that lasts longer than this times PATIENCE hangs
    _data = None
    _digests = {}  # results of undisturbed_digest()

    def setUp(self):
        self.processes = []
        self._at_end = []  # calls of at_end()
        self.records, self.n_records = [], 0  # files of record()
        self._dir = None
        # If this test hangs, prints the stack of every thread and ends the program.
        faulthandler.dump_traceback_later(self.SECONDS * PATIENCE, exit=True)

    def dir(self):
        if self._dir is None:
            self._dir = tempfile.TemporaryDirectory(prefix="weir-test-")
        return self._dir.name

    def path(self, *names):
        """Returns a path in the scratch folder."""
        return os.path.join(self.dir(), *names)

    def new_folder(self, *names):
        """Makes a folder in the scratch folder; returns its path."""
        os.mkdir(self.path(*names))
        return self.path(*names)

    def mount(self, option):
        """Mounts a small file system until the end of the test, or skips it; returns its path."""
        if os.geteuid() != 0:
            self.skipTest("mounting a small file system needs root")
        path = tempfile.mkdtemp(prefix="weir-test-disk-")
        self.addCleanup(os.rmdir, path)
        made = run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", path])
        if made.returncode != 0:
            self.skipTest("a file system cannot be mounted: " + made.stdout.strip())
        self.addCleanup(run, ["umount", "-l", path], check=True)
        return path

    def keep_notes(self, build):
        """Keeps the notes of an existing installation of this build, so that it can be removed
        later."""
        for name in ("install_manifest.txt", "install_folders.txt"):
            path, kept = os.path.join(build, name), self.path(name)
            self.addCleanup(lambda p=path, k=kept: os.path.exists(p) and os.unlink(p) or
                            os.path.exists(k) and shutil.copy(k, p))
            if os.path.exists(path):
                shutil.move(path, kept)

    def write(self, name, content):
        """Writes a file in the scratch folder; returns its path."""
        write_file(self.path(name), content)
        return self.path(name)

    @classmethod
    def data(cls):
        """Returns the folder of the small data set, made once per program."""
        if Test._data is None:
            Test._data = tempfile.TemporaryDirectory(prefix="weir-data-")
            make_data(Test._data.name)
        return Test._data.name

    def start(self, name, argv, **kwargs):
        process = Process(name, argv, **kwargs)
        self.processes.append(process)
        return process

    def record(self, worker=""):
        """Returns the flag with which a worker records its samples in a file of its own, which
        self.records lists from now on."""
        self.n_records += 1
        self.records.append(self.path("samples-%s-%d" % (worker, self.n_records)))
        return "--record_samples=" + self.records[-1]

    def figures(self, name="summary.json"):
        """Returns the summary that a program wrote in the scratch folder."""
        return read_json(self.path(name))

    def make_samples(self, form, name, *flags):
        """Runs scripts/make_data; returns the folder that it made."""
        check_output(["/usr/bin/python3", "-B", source("scripts/make_data"), "--format=" + form,
                      "--out=" + self.path(name), *flags])
        return self.path(name)

    def start_program(self, which, *flags, name=None, **kwargs):
        """Starts ps, worker or weirctl with these flags. name: the name of the process in
        messages, if it is not the program's."""
        return self.start(name or which, [program(which), *flags], **kwargs)

    def start_alone(self, *flags, data=None, model="softmax", name="worker", prefix=(), **kwargs):
        """Starts a worker alone. data: its folder; None: the small data set; False: the flags name
        the data. model=None: a file names the model. prefix: the command that runs the program."""
        named = [models_dir(model), "--model=" + model] if model else []
        if data is not False:
            named.append("--data_dir=" + (data or self.data()))
        return self.start(name, [*prefix, program("worker"), *named, "--progress=lines", *flags],
                          **kwargs)

    def run_worker(self, *flags, status=0, seconds=60, **kwargs):
        """Runs a worker alone to its end; returns the collected process. kwargs: arguments of
        start_alone()."""
        process = self.start_alone(*flags, **kwargs)
        process.wait(seconds, status)
        return process

    def train_alone(self, *flags, status=0, **kwargs):
        """Runs a worker alone to its end; returns the process, and its summary if it succeeds."""
        worker = self.run_worker("--summary_json=" + self.path("summary.json"), *flags,
                                 status=status, **kwargs)
        return worker, None if status else read_json(self.path("summary.json"))

    def digest_alone(self, *flags, model="small"):
        """Runs a worker alone to its end; returns the digest of its parameters."""
        return self.train_alone(*flags, model=model)[1]["parameters_sha256"]

    def job(self, **kwargs):
        return Job(self, **kwargs)

    def started_job(self, ps_flags=(), worker_flags=(), **kwargs):
        """Returns a job whose processes have been started. kwargs: arguments of Job."""
        return Job(self, **kwargs).start(ps_flags, worker_flags)

    def undisturbed_digest(self, **kwargs):
        """Returns the digest of the parameters with which an undisturbed job ends; the job runs
        once for equal arguments of Job."""
        key = repr(sorted(kwargs.items()))
        if key not in Test._digests:
            summaries = self.started_job(**kwargs).finish(120)
            Test._digests[key] = summaries[0]["parameters_sha256"]
        return Test._digests[key]

    def kill(self, *processes):
        for process in processes:
            process.kill()

    def kill_any(self, *processes):
        """Kills processes, which may have ended by themselves. Arguments may be None."""
        for process in filter(None, processes):
            process.stop(signal.SIGKILL, status=None)

    def wait_all(self, processes, seconds=60, status=0):
        """Collects the exits, which must have this status (None: any)."""
        for process in processes:
            process.wait(seconds, status)

    def terminate(self, processes, seconds=60, status=0):
        """Sends SIGTERM to all before it collects the exits."""
        for process in processes:
            process.popen.send_signal(signal.SIGTERM)
        self.wait_all(processes, seconds, status)

    def wait_lines(self, processes, pattern):
        """Waits until each process has printed a line with the pattern."""
        for process in processes:
            process.wait_line(pattern)

    def assert_same(self, got, want, *keys, about=None):
        """Checks that two summaries agree in these keys."""
        for key in keys:
            self.assertEqual(got[key], want[key], (about, key))

    def assert_has(self, text, *parts):
        """Checks that the text contains each part."""
        for part in parts:
            self.assertIn(part, text)

    def at_end(self, end):
        """Makes this call when the test has passed, before the check that it has collected all
        processes. After a failed test no such call is made."""
        self._at_end.append(end)

    def stop_at_end(self, process):
        """Stops the process by SIGTERM when the test has passed, if it still runs; returns it."""
        self.at_end(lambda: process.status is None and process.stop())
        return process

    def tearDown(self):
        try:
            for end in reversed(self._at_end if self._outcome.success else []):
                end()
        finally:
            left = [p.name for p in self.processes if not p._end()]
            if self._dir is not None:
                self._dir.cleanup()
        self.assertEqual(left, [], "the test did not collect these processes")
