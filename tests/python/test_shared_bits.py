"""Training in every mode ends with the same bits with and without shared memory for payloads."""
# label: cluster address
import re

import harness
import test_shared


class Bits(test_shared.Case):
    def test_shared_memory_changes_no_bit(self):
        for flags, n_ps in ((["--optimizer=adam"], 1), (["--optimizer=momentum"], 2),
                            (["--towers=2"], 1), (["--wire_dtype=bf16"], 2),
                            (["--wire_dtype=fp16,fp32"], 1), (["--wire_dtype=fp32,bf16"], 1),
                            (["--fault_push_delay_ms=3"], 2)):
            with self.subTest(flags=flags, n_ps=n_ps):
                flags = flags + ["--train_steps=25"]
                job, on = self.run_job("auto", flags, n_ps=n_ps)
                other, off = self.run_job("off", flags, n_ps=n_ps)
                self.assertEqual(on[0]["parameters_sha256"], off[0]["parameters_sha256"])
                for i in range(2):
                    for k in range(n_ps):
                        said = re.findall(test_shared.ON % k, job.workers[i].output())
                        self.assertEqual(len(said), 1)
                    self.assertNotIn("shared memory", other.workers[i].output())
                    # The first values are sent by TCP, and the last versions if they are in fp32.
                    shared, both = self.moved(on[i])
                    model = 4 * on[i]["parameters"]
                    self.assertGreaterEqual(shared, both - 3 * model)
                    self.assertGreater(shared, 0.8 * both)
                    self.assertEqual(self.moved(off[i])[0], 0)

    def test_shared_memory_works_in_every_mode(self):
        """No member reads a buffer while it is being written: a wrong checksum would cause a
        reconnect."""
        for mode in (["--sync_mode=async"], ["--sync_mode=async", "--delay_compensation=0.5"],
                     ["--sync_mode=ssp", "--staleness=2"], ["--replicas_to_aggregate=2"],
                     ["--sync_mode=async", "--wire_dtype=bf16"]):
            with self.subTest(mode=mode):
                _, summaries = self.run_job("auto", [*mode, "--train_steps=300"], n_ps=2,
                                            n_workers=3)
                for s in summaries:
                    shared, both = self.moved(s)
                    self.assertGreaterEqual(shared, both - 3 * 4 * s["parameters"])


harness.main(__name__)
