"""--list_devices, --gpus and --gpu_wait of the real worker, which loads fakes of the driver's two
libraries (tests/fake_driver) instead of NVIDIA's. tests/worker_devices_test.c tests how the worker
chooses cards, also while processes compete for a card."""
# label: cluster address
import json
import os
import signal

import fake_gpus
import harness
from fake_gpus import IDLE, card, there, uuid

USAGE, PERMANENT = 2, 1


class Listing(fake_gpus.Machine):
    def test_list_has_tensorflows_format(self):
        self.machine(card(0), card(1))
        out, err = self.listed("--list_devices")
        self.assertEqual(err, "")
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        gpu = ('name: "/device:GPU:%d"\ndevice_type: "GPU"\nmemory_limit: 85520809984\n'
               'locality {\n}\nphysical_device_desc: "device: %d, name: NVIDIA H200, '
               'pci bus id: %s, compute capability: 9.0"\n')
        self.assertEqual(out, ('name: "/device:CPU:0"\ndevice_type: "CPU"\nmemory_limit: %d\n'
                               'locality {\n}\n' % memory) +
                         "\n" + gpu % (0, 0, "0000:3b:00.0") + "\n" + gpu % (1, 1, "0000:3a:00.0"))
        self.assertEqual(self.listed("--list_devices=text")[0], out)

    def test_driver_failure_names_remedy(self):
        for code, words in ((34, "stub of libcuda.so.1"), (304, "/dev/nvidia*"),
                            (802, "nvidia-fabricmanager"), (803, "reboot, or in a container"),
                            (804, "cuda-compat"), (999, "'nvidia-smi' as root loads it")):
            self.machine("cuda init=%d\n" % code, card(0))
            _, err = self.listed("--list_devices")
            self.assertRegex(err, r"no GPU: CUDA shows no GPU \(cuInit: %d, .*\); " % code)
            self.assertIn(words, err)
        self.machine(card(0), card(2, more="lost=3"))
        _, err = self.listed("--list_devices")
        self.assertRegex(err, r"query of GPU 1 for its memory: 999, .* fell off the bus, reset it "
                              r"or "
                         r"reboot, or exclude it by CUDA_VISIBLE_DEVICES")

    def test_missing_mig_instance_named(self):
        self.machine(card(0), "mig uuid=MIG-aaaaaaaa-0000-4000-8000-000000000000 total=18000\n",
                     "mig uuid=MIG-bbbbbbbb-0000-4000-8000-000000000000 total=18000\n")
        for visible, shown in (("MIG-cccccccc-0000-4000-8000-000000000000", 0),
                               ("MIG-bbbbbbbb,MIG-aaaaaaaa", 1)):
            out, err = self.listed("--list_devices", env=self.env(CUDA_VISIBLE_DEVICES=visible))
            self.assertEqual(out.count("/device:GPU:"), shown)
            self.assertRegex(err, r"W .*CUDA_VISIBLE_DEVICES='%s' has \d entr.*, CUDA shows %d "
                             "GPU.*: a process gets one MIG instance, .*'nvidia-smi -L'" %
                             (visible, shown))

    def test_list_shows_limits_health_and_owner(self):
        self.machine("nvml driver=550.54.15\n",
                     card(0, more="temp=41 power=68500 limit=700000 ecc=1 eccerr=2"), card(1))
        gpus = self.gpus()  # CUDA's first GPU is card 1, for which the driver reports nothing
        keys = ("temperature_celsius", "power_watts", "power_limit_watts", "ecc",
                "ecc_uncorrected_errors")
        self.assertEqual([gpus[0][k] for k in keys], [None] * 5)
        self.assertEqual([gpus[1][k] for k in keys], [41, 68.5, 700.0, True, 2])
        self.assertEqual([g["memory_limit_bytes"] for g in gpus], [81559 << 20] * 2)
        self.assertEqual([g["reservations"] for g in gpus], [[], []])
        self.worker("--gpus=1", "--gpu_memory_fraction=0.4", "--gpu_wait=0",
                    # If the backend cannot be loaded, no GPU stays reserved.
                    "--train_steps=1000000", env=self.env(("fake_cuda", "fake_nvml"))).wait(30, 1)
        self.assertEqual(self.gpus()[1]["reservations"], [])
        for fraction, limit in (("0.25", (81559 << 20) // 4), ("0", 81559 << 20)):
            out, _ = self.listed("--list_devices", "--gpu_memory_fraction=" + fraction)
            self.assertEqual(out.count("memory_limit: %d\n" % limit), 2)
            listed = json.loads(self.listed("--list_devices=json",
                                            "--gpu_memory_fraction=" + fraction)[0])
            self.assertEqual([d["memory_limit_bytes"] for d in listed["devices"][1:]], [limit] * 2)
        old = self.gpus(env=self.env(("fake_cuda", "fake_nvml_old")))
        self.assertEqual([old[1][k] for k in keys], [None] * 5)
        self.machine(card(0, more="temp=41 lost=2"))
        self.assertIsNone(self.gpus()[0]["temperature_celsius"])

    def test_list_as_json_has_all_fields(self):
        me = os.getpid()
        self.machine(card(0, "total=81559 used=40000 busy=93 procs=%d,77" % me), card(1), card(2),
                     card(3, more="lost=2"))
        self.reserve(2)
        everything = self.json()
        self.assertEqual([d["name"] for d in everything["devices"]],
                         ["/device:CPU:0"] + ["/device:GPU:%d" % i for i in range(4)])
        self.assertEqual(everything["gpus_of_machine"], 4)
        self.assertEqual(everything["lock_dir"], self.locks())
        fast, busy, reserved, lost = everything["devices"][1:]
        self.assertEqual(fast, {
            "name": "/device:GPU:0", "device_type": "GPU", "product": "NVIDIA H200",
            "uuid": uuid(1), "pci_bus_id": "0000:3b:00.0", "compute_capability": "9.0",
            "mig": False, "memory_bytes": 81559 << 20, "free_bytes": 81059 << 20,
            "used_bytes": 500 << 20, "utilization_percent": 0, "n_processes": 0, "processes": [],
            "auto": True, "auto_refuses": None, "memory_limit_bytes": 81559 << 20,
            "temperature_celsius": None, "power_watts": None, "power_limit_watts": None,
            "ecc": None, "ecc_uncorrected_errors": None, "reservations": []})
        self.assertEqual((busy["uuid"], busy["utilization_percent"], busy["n_processes"],
                          busy["processes"], busy["auto"]), (uuid(0), 93, 2, [me, 77], False))
        self.assertRegex(busy["auto_refuses"],
                         r"2 processes compute on it, for example process %d \(" % me)
        self.assertRegex(reserved["auto_refuses"], "process %d has reserved it" % me)
        self.assertEqual((lost["free_bytes"], lost["auto"]), (None, False))
        self.assertIn("GPU is lost", lost["auto_refuses"])

    def test_list_follows_cuda_visible_devices(self):
        self.machine(*(card(i) for i in range(4)))
        for visible, order, cards in ((None, None, [1, 0, 2, 3]), ("0,3", None, [1, 3]),
                                      ("3,-1,0", None, [3]), ("0,3", "PCI_BUS_ID", [0, 3]),
                                      (uuid(2) + "," + uuid(0), None, [2, 0]), ("", None, []),
                                      ("2,2", None, [])):
            more = {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": order}
            env = self.env(**{k: v for k, v in more.items() if v is not None})
            self.assertEqual([g["uuid"] for g in self.gpus(env=env)], [uuid(i) for i in cards],
                             (visible, order))

    def test_list_shows_mig_instances(self):
        parts = ["MIG-%s-0000-4000-8000-000000000000" % (c * 8) for c in "ab"]
        self.machine(card(0), "mig uuid=%s total=18000 used=9000 procs=5\n" % parts[0],
                     "mig uuid=%s total=18000 used=12\n" % parts[1])
        (gpu,) = self.gpus()
        self.assertEqual((gpu["uuid"], gpu["processes"], gpu["auto"]), (parts[0], [5], False))
        (gpu,) = self.gpus(env=self.env(CUDA_VISIBLE_DEVICES=parts[1]))
        self.assertEqual((gpu["uuid"], gpu["mig"], gpu["auto"], gpu["memory_bytes"],
                          gpu["utilization_percent"]), (parts[1], True, True, 18000 << 20, None))

    def test_list_works_with_old_driver(self):
        self.machine(card(0, IDLE + " procs=5,6,7"))
        (gpu,) = self.gpus(env=self.env(("fake_cuda", "fake_nvml_old")))
        self.assertEqual(gpu["processes"], [5, 6, 7])

    def test_list_works_without_driver(self):
        if there("libcuda.so.1"):
            self.skipTest("this machine has a driver")
        out, err = self.listed("--list_devices", env=self.env(()))
        self.assertEqual(out.count("name:"), 1)
        self.assertIn("no GPU: there is no NVIDIA driver (libcuda.so.1: ", err)
        everything = self.json(env=self.env(()))
        self.assertEqual(len(everything["devices"]), 1)
        self.assertIn("no NVIDIA driver", everything["why_no_gpu"])
        self.assertEqual(os.listdir(self.locks()), [])

    def test_signal_ends_list_that_hangs(self):
        """A signal ends the list whatever the driver does: this driver never returns."""
        os.mkfifo(self.path("state"))
        p = self.start_program("worker", "--list_devices", env=self.env())
        with open(self.path("state"), "w", encoding="ascii"):  # the worker is in the driver
            p.stop(signal.SIGINT, status=-signal.SIGINT)


class Choosing(fake_gpus.Machine):
    def test_bad_gpu_flags_refused(self):
        for flags, word in ((["--gpus=most"], "'most' is invalid; use"), (["--gpus="], "''"),
                            (["--gpus=auto:0"], "'auto:0'"), (["--gpu_wait=-1"], "below 0"),
                            (["--gpus=0", "--gpu_wait=3"], "only --gpus=auto waits"),
                            (["--list_devices=xml"], "not one of text|json")):
            self.refused(self.worker(*flags), USAGE, word)

    def test_missing_driver_falls_back_to_cpu_with_one_line(self):
        """The line appears if a flag requests a GPU. Otherwise the line that names the device is
        enough."""
        if there("libcuda.so.1"):
            self.skipTest("this machine has a driver")
        p = self.worker(env=self.env(()))
        self.assertNotIn("NVIDIA", p.wait_output(30))
        self.assertIn("tower 0: CPU, ", p.output())
        for flags in (("--gpus=auto",), ("--gpus=auto:3", "--gpu_wait=60")):
            p = self.worker(*flags, env=self.env(()))
            self.assertEqual(p.wait_output(30).count("training on the CPU"), 1)
            self.assertIn("there is no NVIDIA driver", p.output())
        self.assertNotIn("GPU", self.worker("--gpus=none", env=self.env(())).wait_output(30))
        for gpus in ("all", "0", uuid(0)):
            self.refused(self.worker("--gpus=" + gpus, env=self.env(())), PERMANENT,
                         "there is no GPU, only the CPU: there is no NVIDIA driver")

    def test_failing_driver_falls_back_to_cpu(self):
        self.machine("cuda init=803\n", card(0))
        p = self.worker()
        self.assertIn("training on the CPU: CUDA shows no GPU (cuInit: 803, ", p.wait_output(30))

    def test_driver_without_nvml_trains(self):
        self.machine("nvml init=18\n", card(0, "total=81559 used=70000 procs=5"))
        cases = [self.env()]
        if not there("libnvidia-ml.so.1"):
            cases.append(self.env(("fake_cuda",)))
        for env in cases:
            p = self.worker(env=env)
            self.assertRegex(p.wait_output(30),
                             r"GPU 0 \(NVIDIA H200, %s, 0000:3a:00.0\): reserved" % uuid(0))
            self.assertIn("cannot determine which other processes use the chosen GPUs", p.output())
            (gpu,) = self.gpus(env=env)
            self.assertEqual((gpu["free_bytes"], gpu["n_processes"], gpu["processes"],
                              gpu["utilization_percent"], gpu["auto"]), (None,) * 4 + (True,))

    def test_missing_gpus_refused(self):
        self.machine(*(card(i) for i in range(3)))
        self.refused(self.worker("--gpus=0,7", env=self.env(CUDA_VISIBLE_DEVICES="1,2")), PERMANENT,
                     "'7' is not a GPU that CUDA shows; CUDA shows GPU 0 (NVIDIA H200, " + uuid(0),
                     "GPU 1 (NVIDIA H200, " + uuid(2), "'1,2' shows 2 of this machine's 3")

    def test_busy_gpus_refused(self):
        self.machine(card(0, "total=81559 used=60000 busy=99"), card(1))
        self.reserve(1)
        p = self.worker()
        self.assertRegex(
            p.wait_output(30), r"no GPU is free, training on the CPU: GPU 0: process %d has "
            r"reserved it; GPU 1: 62.9 of its 85.5 GB of memory are in use" % os.getpid())

    def test_gpu_of_ended_job_is_free(self):
        """NVML still reports the job's utilisation; in a container it lists no processes."""
        ended = "total=81559 used=500 busy=100 lag=1000"
        self.machine(card(0, ended))
        p = self.worker()
        p.wait(30)
        self.assertRegex(p.output(), r"GPU 0 \(NVIDIA H200, %s, 0000:3a:00.0\): reserved" % uuid(0))
        self.assertNotIn("no GPU is free", p.output())
        self.machine("nvml container=1\n", card(0, "total=81559 used=620 busy=95 procs=5"),
                     card(1, "total=81559 used=9000 busy=95 procs=6"), card(2, ended))
        self.assertEqual([g["processes"] for g in self.gpus()], [[], [], []])
        p = self.worker("--gpus=auto:3")
        p.wait(30)
        self.assertRegex(p.output(), r"GPU 2 \(NVIDIA H200, %s, 0000:3c:00.0\): reserved" % uuid(2))
        self.assertIn("1 of the 3 requested GPUs are free: GPU 0: 9.4 of its 85.5 GB of "
                      "memory are in use; GPU 1: it is busy for 95 % of the time", p.output())

    def test_gpu_wait_ends_when_cards_are_free(self):
        busy = "total=81559 used=60000 procs=5"
        self.machine(card(0, busy), card(1, busy))
        p = self.worker("--gpu_wait=600")
        p.wait_line("waiting for 1 more GPU, at most 600 s: GPU 0: process 5")
        self.machine(card(0), card(1, busy))
        p.wait_line("GPU 1 .*: reserved")
        p.wait(30)

    def test_signal_ends_gpu_wait(self):
        self.machine(card(0, "total=81559 used=60000 procs=5"))
        for signum in (signal.SIGTERM, signal.SIGINT):
            p = self.worker("--gpu_wait=600")
            p.wait_line("waiting for")
            p.stop(signum, status=128 + signum)  # long before the end of the 600 s


harness.main(__name__)
