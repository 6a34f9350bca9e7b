#!/usr/bin/python3
"""What cmake --install makes of this build: all that runs is there, finds its parts wherever the
whole is moved, and says where it looked if it was moved alone."""
# label: cluster
import os
import shlex
import shutil
import signal
import subprocess
import unittest

import harness

BUILD = os.path.dirname(harness.BIN)
PERMANENT = 1


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "cmake_install.cmake")),
                     "%s is no build folder of CMake" % BUILD)
class Install(harness.Test):
    def install(self):
        """All of it, moved since; its folder."""
        first, moved = (os.path.join(self.dir(), d) for d in ("first", "moved"))
        subprocess.run(["cmake", "--install", BUILD, "--prefix", first], check=True,
                       stdout=subprocess.DEVNULL, timeout=120 * harness.PATIENCE)
        os.rename(first, moved)
        return moved

    def run_program(self, path, *flags, status=0):
        process = self.start(os.path.basename(path), [path, *flags])
        process.wait(60, status)
        return process

    def train(self, worker, *flags, status=0):
        return self.run_program(worker, "--train_steps=2", "--data_dir=" + self.data(), *flags,
                                status=status)

    def test_all_is_there(self):
        where = self.install()
        models = os.listdir(harness.MODELS)
        self.assertEqual(sorted(os.listdir(os.path.join(where, "share/weir/models"))),
                         sorted(m for m in models if m.endswith(".json")))
        for file in ("share/weir/scripts/get_mnist", "share/weir/weir.proto",
                     "share/doc/weir/README.md", "share/doc/weir/docs/operations.md"):
            self.assertTrue(os.path.exists(os.path.join(where, file)), file)
        for backend in os.listdir(os.path.join(BUILD, "lib")):
            if backend == "separate":
                continue  # for finding errors, from the build's folder
            self.assertTrue(os.path.exists(os.path.join(where, "lib", backend)), backend)
        ports = harness.free_ports(2)
        hosts = ["--ps_hosts=%s:%d" % (harness.LOOPBACK, ports[0]),
                 "--worker_hosts=%s:%d" % (harness.LOOPBACK, ports[1])]
        ps = self.start("weir-ps", [os.path.join(where, "bin/weir-ps"), *hosts])
        self.train(os.path.join(where, "bin/weir-worker"), "--model=softmax", *hosts)
        ps.wait(60)
        self.run_program(os.path.join(where, "bin/weirctl"), "--version")

    def test_a_worker_joins_by_the_printed_line(self):
        """Programs are named as they are there, where another `ps` may be first in PATH."""
        where = self.install()
        ports = harness.free_ports(2)
        hosts = ["--ps_hosts=%s:%d" % (harness.LOOPBACK, ports[0]),
                 "--worker_hosts=%s:%d" % (harness.LOOPBACK, ports[1])]
        programs = [self.start("weir-ps", [os.path.join(where, "bin/weir-ps"), *hosts]),
                    self.start("weir-worker", [
                        os.path.join(where, "bin/weir-worker"), "--model=softmax",
                        "--train_steps=100000000", "--data_dir=" + self.data(), *hosts])]
        programs[1].wait_line("training step")
        ctl = [os.path.join(where, "bin/weirctl"), hosts[0], "add"]
        line, ps = (subprocess.run(ctl + words, check=True, stdout=subprocess.PIPE, text=True,
                                   timeout=60 * harness.PATIENCE).stdout
                    for words in (["worker"], ["ps", "localhost:9"]))
        self.assertTrue(ps.startswith(os.path.join(where, "bin/weir-ps --join ")), ps)
        programs.append(self.start("joiner", shlex.split(line)))
        programs[2].wait_line("joined as worker 1")
        for program in programs:
            program.stop(signal.SIGKILL, status=-signal.SIGKILL)

    def test_where_to_fetch_data(self):
        """The script that is named is one that is there."""
        where = self.install()
        worker = self.run_program(os.path.join(where, "bin/weir-worker"), "--data_dir=" + where,
                                  status=PERMANENT)
        worker.wait_line(r"or fetch MNIST \(%s/share/weir/scripts/get_mnist\)" % where)

    def test_a_program_alone(self):
        alone = os.path.join(self.dir(), "alone")
        os.mkdir(alone)
        worker = os.path.join(alone, "worker")
        shutil.copy(os.path.join(harness.BIN, "worker"), worker)
        said = self.train(worker, "--models_dir=" + harness.MODELS, "--model=softmax",
                          status=PERMANENT)
        said.wait_line("E .* libweir_cpu.so is neither in %s/../lib nor in %s; .*--backend_dir" %
                       (alone, alone))
        shutil.copy(os.path.join(BUILD, "lib/libweir_cpu.so"), alone)
        self.train(worker, "--models_dir=" + harness.MODELS, "--model=softmax")


if __name__ == "__main__":
    harness.main()
