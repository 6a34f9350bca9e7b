#!/usr/bin/python3
"""weir.reserve() and weir.devices(): programs in Python reserve GPUs beside each other and beside
workers, on fakes of the driver's libraries."""
# label: cluster
import os
import pwd
import signal
import sys

import fake_gpus
import harness
from fake_gpus import card, uuid

USER = pwd.getpwuid(os.getuid()).pw_name


class Reserving(fake_gpus.Machine):
    def python(self, code, name="program"):
        """Starts a Python program in which reserve() and devices() use the test's folder."""
        env = harness.package_env(**self.env())
        env.pop("CUDA_VISIBLE_DEVICES", None)
        return self.start(name, [sys.executable, "-u", "-c", "import functools, os, sys, weir\n"
                                 "reserve, devices = (functools.partial(f, lock_dir=%r) for f in "
                                 "(weir.reserve, weir.devices))\n%s" % (self.locks(), code)],
                          env=env)

    def holder(self, call="reserve()"):
        """Starts a program that reserves and then waits for its end."""
        p = self.python(call + "\nimport time\nprint('ready')\nwhile True: time.sleep(60)",
                        "holder")
        p.wait_line("^ready", 30)
        self.at_end(lambda: p.status is None and p.stop(status=-signal.SIGTERM))
        return p

    def said(self, code):
        return self.python(code).wait_output(60)

    def test_program_without_free_gpu_prints_the_holder(self):
        self.machine(card(0))
        held = self.holder()
        said = self.said("gpu = reserve()\nprint(gpu.device, repr(os.environ['CUDA_VISIBLE_DEVICES'"
                         "]), gpu.gpus)")
        self.assertRegex(said, r"no GPU is free, computing on the CPU: GPU 0: process %d has "
                         r"reserved it \(python3?\S* of %s, since \d{4}-\d\d-\d\d \d\d:\d\d\)"
                         % (held.popen.pid, USER))
        self.assert_has(said, "cpu '' []")
        said = self.said("try: reserve(required=True)\nexcept weir.Unavailable as e: print(e)")
        self.assert_has(said, "no GPU is free: GPU 0: process %d has" % held.popen.pid)

    def test_devices_show_the_holder(self):
        self.machine(card(0), card(2))
        held = self.holder()
        said = self.said("print(devices())")
        self.assert_has(said, "%s, 86 GB): not free\n" % uuid(0), "%s, 86 GB): free" % uuid(2),
                        "of %s (process %d) has reserved it since 20" % (USER, held.popen.pid))
        gpu = self.gpus()[0]  # the worker's list
        self.assertEqual([r["pid"] for r in gpu["reservations"]], [held.popen.pid])
        self.assertFalse(gpu["auto"])

    def test_killed_holder_frees_its_gpu(self):
        self.machine(card(0))
        held = self.holder()
        waits = self.python("reserve(wait=60)")
        waits.wait_line("waiting for 1 GPU, at most 60 s: GPU 0: process %d" % held.popen.pid)
        self.kill(held)
        self.assert_has(waits.wait_output(60), "reserved: GPU 0 (NVIDIA H200, " + uuid(0))

    def test_forked_children_do_not_keep_the_gpu(self):
        self.machine(card(0))
        held = self.holder("reserve()\nif os.fork() == 0:\n    print('child', os.getpid())\n"
                           "    import time; time.sleep(600)")
        held.wait_line("^child")
        self.kill(held)
        self.assertTrue(self.gpus()[0]["auto"])

    def test_fractions_are_added_up_with_those_of_workers(self):
        self.machine(card(0))
        self.holder("reserve(memory_fraction=0.4)")
        self.holder("reserve(memory_fraction=0.4)")
        said = self.said("reserve(memory_fraction=0.4)\ngpu = reserve(memory_fraction=0.2)\n"
                         "print(gpu.memory_fraction, devices(memory_fraction=0.3))")
        self.assert_has(said, "so 0.4 of it does not fit", "0.2 of the memory of GPU 0",
                        ", this one) has reserved 0.2 of the memory since")
        listed = self.listed("--list_devices=json", "--gpu_memory_fraction=0.3")[0]
        self.assert_has(listed, "so 0.3 of it does not fit")

    def test_several_gpus_are_reserved_at_once(self):
        self.machine(card(0), card(2), card(3))
        self.holder()
        said = self.said("gpu = reserve(n=2)\nprint(gpu.device, os.environ['CUDA_VISIBLE_DEVICES'])"
                         "\ngpu = reserve(n=3)\nprint(len(gpu.gpus))")
        self.assert_has(said, "cuda %s,%s\n" % (uuid(2), uuid(3)), "no more GPUs are free: GPU 0:",
                        "\n2")

    def test_repeated_call_returns_the_same_reservation(self):
        self.machine(card(0), card(2))
        said = self.said("os.environ['CUDA_VISIBLE_DEVICES'] = '1,0'\na = reserve()\n"
                         "print(a is reserve(), os.environ['CUDA_VISIBLE_DEVICES'])\n"
                         "b = reserve(memory_fraction=0.5)\nprint(a is b, len(devices().gpus))\n"
                         "b.release()\nb.release()\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n"
                         "print(devices())")
        self.assert_has(said, "True " + uuid(2), "False 2", "\n1,0\n", "free\nGPU 1")

    def test_gpu_that_other_programs_use_is_not_reserved(self):
        self.machine(card(0, "total=81559 used=9000 busy=50 procs=%d" % os.getpid()))
        self.assert_has(self.said("reserve()"), "computing on the CPU: GPU 0: process %d (" %
                        os.getpid(), "computes on it")

    def test_load_of_an_ended_process_is_waited_for(self):
        self.machine(card(0, "total=81559 used=500 busy=90"))
        said = self.python("print(devices())\nreserve()")
        said.wait_line("not free: it is busy for 90 %")
        self.machine(card(0))
        self.assert_has(said.wait_output(60), "reserved: GPU 0")

    def test_machine_without_driver_computes_on_the_cpu(self):
        self.machine()
        said = self.said("print(devices())\nprint(reserve(wait=0).device)")
        self.assert_has(said, "no GPU: CUDA shows no GPU", "computing on the CPU: CUDA shows no",
                        "\ncpu")

    def test_wrong_arguments_are_refused(self):
        self.machine(card(0))
        for call in ("n=0", "memory_fraction=1.1", "memory_fraction=-1", "wait=-1",
                     "wait=float('inf')"):
            said = self.said("try: reserve(%s)\nexcept weir.Invalid as e: print(e)" % call)
            self.assert_has(said, "reserve() needs n from 1")

    def test_cuda_in_use_is_refused(self):
        self.machine(card(0), card(2))
        torch = ("import types\ntorch = types.SimpleNamespace()\nsys.modules['torch'] = torch\n"
                 "torch.version = types.SimpleNamespace(cuda='13')\n"
                 "torch.cuda = types.SimpleNamespace(is_initialized=lambda: %s,\n"
                 "                                   is_available=lambda: %s)\n"
                 "torch._C = types.SimpleNamespace(_cuda_getDeviceCount=lambda: %d)\n"
                 "try: print(reserve().device)\nexcept weir.Invalid as e: print(e)")
        self.assert_has(self.said(torch % (True, True, 2)), "this process uses CUDA already")
        self.assert_has(self.said(torch % (False, True, 2)), "this process used CUDA before")
        self.assert_has(self.said(torch % (False, True, 1)), "\ncuda")
        self.assert_has(self.said(torch % (False, False, 0)), "PyTorch cannot use the reserved",
                        "\ncpu")


harness.main(__name__)
