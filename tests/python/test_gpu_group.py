"""A worker with two GPUs and two towers on each adds the gradients of all towers. In a job with a
server its parameters end near those of one tower on the CPU, with the same bits in each run, with
NCCL (emulated by tests/emulation) and without. A signal ends the worker also while NCCL hangs."""
# label: cluster computes
import concurrent.futures
import signal
import unittest

import fake_gpus
import harness

RETRY = 138
TOWERS = ("--gpus=0,1", "--towers_per_gpu=2")


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class GpuGroup(fake_gpus.Machine):
    CUDA = fake_gpus.EMULATED

    def setUp(self):
        super().setUp()
        self.machine(*[fake_gpus.card(i, "total=400 used=10") for i in range(2)])

    def train(self, name, *flags, nccl="", served=True):
        """Returns (summary, parameters, output) of a worker that trained, with or without a
        server."""
        summary = self.path(name + ".json")
        export = self.path(name + ".safetensors")
        env = self.env(WEIR_EMULATED_NCCL=nccl)
        hosts = []
        if served:
            job = self.job(n_workers=1)
            server = job.start_ps()
            hosts = [*job.hosts(), "--job_name=worker", "--task_index=0"]
        p = self.worker(*hosts, "--model=mlp",
                        "--train_steps=20", "--batch_size=22", "--seed=3", "--optimizer=sgd",
                        "--learning_rate=0.1", "--intra_op_threads=1", "--deterministic",
                        "--summary_json=" + summary, "--export=" + export, *flags, env=env)
        p.wait(60)
        if served:
            server.wait(20)
        return harness.read_json(summary), harness.read_safetensors(export), p.output()

    def compare(self, a, b):
        self.assertAlmostEqual(a[0]["loss"], b[0]["loss"], delta=1e-4)
        self.assertEqual(a[0]["test_accuracy"], b[0]["test_accuracy"])
        self.assertEqual(a[1].keys(), b[1].keys())
        for name, (_, values) in a[1].items():
            largest = max(abs(x) for x in values)
            furthest = max(abs(x - y) for x, y in zip(values, b[1][name][1]))
            self.assertLess(furthest, 1e-4 * largest, name)

    def test_towers_of_two_gpus_match_one_tower(self):
        cpu = self.train("cpu", "--gpus=none")
        first, again = self.train("first", *TOWERS), self.train("again", *TOWERS)
        self.assertEqual([t["samples"] for t in first[0]["towers"]], [5, 6, 5, 6])
        self.assertIn("adds the gradients of 2 cards", first[2])
        self.assertIn("NCCL_ALGO=Ring NCCL_PROTO=Simple", first[2])  # --deterministic
        self.compare(first, cpu)
        self.assertEqual(first[0]["parameters_sha256"], again[0]["parameters_sha256"])
        mixed = self.train("mixed", *TOWERS, "--towers=1", "--cpu_batch_size=3")
        self.compare(mixed, cpu)

    def test_towers_without_nccl_match_one_tower(self):
        cpu = self.train("cpu", "--gpus=none")
        first = self.train("first", *TOWERS, nccl="absent")
        again = self.train("again", *TOWERS, nccl="absent")
        self.assertIn("the host adds the gradients of the 2 cards", first[2])
        self.compare(first, cpu)
        self.assertEqual(first[0]["parameters_sha256"], again[0]["parameters_sha256"])

    def test_cards_without_servers_keep_parameters(self):
        # The cards exchange sums and parameters themselves, with the bits of a job with a server.
        for flags in (), ("--optimizer=adam", "--learning_rate=0.002"):
            cards = ("--gpus=0,1", *flags)
            served = self.train("served", *cards)
            self.assertNotIn("without copies to the host", served[2])
            for graphs in "on", "off":
                alone = self.train("alone", *cards, "--cuda_graphs=" + graphs, served=False)
                self.assertIn("training runs on 2 devices (cuda:0, ...) without copies", alone[2])
                self.assertEqual(graphs == "on", "each step is one CUDA graph" in alone[2])
                self.assertNotIn("cannot become one CUDA graph", alone[2])
                self.assertEqual(alone[0]["parameters_sha256"], served[0]["parameters_sha256"])
                self.assertEqual(alone[0]["loss"], served[0]["loss"])

    def test_cards_that_cannot_exchange_parameters_use_the_host(self):
        served = self.train("served", "--gpus=0,1", nccl="absent")
        absent = self.train("absent", "--gpus=0,1", nccl="absent", served=False)
        self.assertIn("the cards cannot exchange parameters", absent[2])
        self.assertNotIn("without copies to the host", absent[2])
        self.assertEqual(absent[0]["parameters_sha256"], served[0]["parameters_sha256"])

    def test_lost_card_ends_worker(self):
        self.machine(fake_gpus.card(0, "total=400 used=10", "launches=900"),  # CUDA's device 1
                     fake_gpus.card(1, "total=400 used=10"))
        p = self.worker("--gpus=0,1", "--model=mlp", "--train_steps=1000000", "--batch_size=20",
                        env=self.env())
        p.wait_line("training runs on 2 devices")
        p.wait(30, RETRY)
        self.assertIn("CUDA device 1: cuda", p.output())
        # NCCL would never return from an abort while the lost card has a graph with NCCL's work.
        self.assertIn("this process exits without waiting for them", p.output())

    def test_lost_card_without_graphs_ends_worker(self):
        self.machine(fake_gpus.card(0, "total=400 used=10", "launches=900"),
                     fake_gpus.card(1, "total=400 used=10"))
        p = self.worker("--gpus=0,1", "--model=mlp", "--train_steps=1000000", "--batch_size=20",
                        "--cuda_graphs=off", env=self.env())
        p.wait_line("training runs on 2 devices")
        p.wait(30, RETRY)
        self.assertNotIn("exits without waiting", p.output())

    def test_failing_nccl_ends_worker(self):
        p = self.worker(*TOWERS, "--model=mlp", "--train_steps=1000000", "--batch_size=20",
                        env=self.env(WEIR_EMULATED_NCCL="fail=30"))
        self.refused(p, RETRY, "NCCL between 2 cards: ncclReduceScatter: ")

    def test_nccl_failing_in_a_capture_ends_worker(self):
        # The first step makes 4 or 6 of these calls, and the captured step as many.
        p = self.worker("--gpus=0,1", "--model=mlp", "--train_steps=1000000", "--batch_size=20",
                        env=self.env(WEIR_EMULATED_NCCL="error=ncclAllGather:7"))
        self.refused(p, RETRY, "NCCL between 2 cards: ncclAllGather: ")
        self.assertIn("NCCL failed while a step was captured as a CUDA graph", p.output())
        self.assertNotIn("launched one by one", p.output())

    def test_hanging_nccl_does_not_block_stop(self):
        # Both towers hang in NCCL, so neither can react to SIGTERM.
        workers = [self.worker(TOWERS[0], "--model=mlp", "--train_steps=1000000",
                               "--batch_size=20", "--cuda_graphs=" + graphs,
                               env=self.env(WEIR_EMULATED_NCCL="hang=11"))
                   for graphs in ("on", "off")]
        for p in workers:
            p.wait_line("a collective hangs")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda p: p.stop(), workers))

    def test_hanging_set_up_of_nccl_does_not_block_stop(self):
        p = self.worker(TOWERS[0], "--model=mlp", "--train_steps=1000000", "--batch_size=20",
                        env=self.env(WEIR_EMULATED_NCCL="stuck"))
        p.wait_line("ncclGetUniqueId hangs")
        p.popen.send_signal(signal.SIGINT)
        p.wait_line("interrupted: stopping after this part of the set-up; a second signal ends")
        p.stop(signal.SIGINT, status=-signal.SIGINT)


harness.main(__name__)
