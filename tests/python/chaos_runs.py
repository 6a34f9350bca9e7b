"""Runs of tests/chaos: the undisturbed cluster, and the seeds, whose results are compared with that
of the undisturbed cluster."""
import math
import os
import shutil
import sys
import time

import chaos_disk
import chaos_schedule
import ckpt_folder
import harness
import samples
from chaos_cluster import Cluster

harness.use_package()
import table_trainer  # noqa: E402

BATCH, MODEL = 12, "lenet5"
TABLE_MEMBER = harness.source("tests/python/chaos_member.py")
# Least deadline of the undisturbed run, in seconds: --deadline may be shorter.
UNDISTURBED_S = 30 * harness.PATIENCE
SYNC = ("sync", "clip")  # the parameters equal those of the undisturbed run, bit for bit
MODES = {"sync": [], "clip": ["--clip_norm=0.1"], "async": ["--sync_mode=async"],
         "ssp": ["--sync_mode=ssp", "--staleness=1"], "backup": ["--replicas_to_aggregate=2"]}


def ps_has(flag):
    out = harness.check_output([harness.program("ps"), "--help"])
    return "--" + flag in out


class Runs:
    """Runs of one shape of cluster. o: the options of tests/chaos."""

    def __init__(self, o, data, folder, network=None, disk=False):
        self.o, self.data, self.folder, self.network = o, data, folder, network
        self.disk = disk  # each run has a disk of its own
        self.want = None
        if o.tables:  # its workers import the package
            os.environ.update(harness.package_env())
        # Whether runs must end with the undisturbed run's bits.
        self.has_bits = o.mode in SYNC and not o.late

    def cluster(self, folder, seed, disturbed):
        os.makedirs(folder)
        ps = ["--checkpoint_dir=" + os.path.join(folder, "ckpt"),
              "--save_steps=%d" % self.o.save_steps]
        if ps_has("worker_timeout"):
            ps.append("--worker_timeout=%d" % (self.o.worker_timeout * harness.SLOWNESS))
        worker = [harness.program("worker"), "--models_dir=" + harness.MODELS, "--model=" + MODEL,
                  "--progress=lines", "--data_dir=" + self.data, "--batch_size=%d" % BATCH,
                  "--seed=5", "--train_steps=%d" % self.o.steps, "--chunk_bytes=32768",
                  "--log_every=1", "--intra_op_threads=1", *MODES[self.o.mode]]
        if self.o.tables:
            worker = [sys.executable, "-B", TABLE_MEMBER, "--train_steps=%d" % self.o.steps,
                      "--batch_size=%d" % table_trainer.BATCH, "--seed=%d" % table_trainer.SEED,
                      *MODES[self.o.mode]]
        if disturbed:
            worker.append("--%spush_delay_ms=%d" % ("" if self.o.tables else "fault_",
                                                    self.o.push_delay))
        disk = None
        if disturbed and self.disk:
            disk = chaos_disk.Disk(os.path.join(folder, "ckpt"), folder + ".image")
        if seed % 2:  # both transports must produce the same bits
            ps.append("--shared_memory=off")
            worker.append("--shared_memory=off")
        return Cluster(folder, self.o.ps, self.o.workers, self.network, ps, worker, disk)

    def undisturbed(self):
        """Returns the SHA-256 of the parameters that every seed must end with."""
        if self.want is None:
            cluster = self.cluster(os.path.join(self.folder, "undisturbed"), 0, False)
            try:
                cluster.run([], max(self.o.deadline, UNDISTURBED_S))
                self.want = cluster.summaries()[0][1]["parameters_sha256"]
                if self.o.tables and self.want != table_trainer.plain(self.o.workers, self.o.steps):
                    raise harness.Failure("the undisturbed run's rows are not those of a program "
                                          "without servers")
            except harness.Failure:
                cluster.keep_logs(os.path.join(self.o.logs, "undisturbed"))
                raise
            finally:
                cluster.stop_all()
        return self.want

    def check(self, cluster, want):
        """Returns the faults of the end of a run; an empty list if there are none."""
        wrong = cluster.bad_lines()[:5]
        summaries = cluster.summaries()
        has_bits = self.has_bits and not cluster.other_samples
        # The samples of a step differ from the undisturbed run's: the parameters of the workers
        # must equal each other only.
        if not has_bits:
            want = summaries[0][1]["parameters_sha256"] if summaries else None
        if not summaries or (not self.o.late and not cluster.all_saw_the_end()):
            wrong.append("not all workers saw the end")
        for i, s in summaries:
            if s["global_step"] != self.o.steps:
                wrong.append("worker %d ended at step %d" % (i, s["global_step"]))
            if s["parameters_sha256"] != want:
                wrong.append("worker %d ended with other parameters than %s" %
                             (i, "the undisturbed run" if has_bits else "other workers"))
            if not math.isfinite(s["loss"]):
                wrong.append("worker %d ended with a loss of %g" % (i, s["loss"]))
        if self.o.mode in SYNC:
            wrong += self.check_samples(cluster)
        steps = ckpt_folder.steps(os.path.join(cluster.folder, "ckpt"))
        if self.o.steps not in steps and not cluster.disk_kept_the_last():
            wrong.append("no checkpoint of the last step, only of %s" % steps)
        return wrong

    def check_samples(self, cluster):
        paths = [cluster.samples_path(i) for i in range(self.o.workers + 1)]
        return samples.wrong([p for p in paths if os.path.exists(p)], self.o.steps)

    def seed(self, seed):
        """Returns (faults found, the cluster, seconds)."""
        want = self.undisturbed() if self.has_bits else None
        faults = chaos_schedule.make(seed, self.o.shape)
        folder = os.path.join(self.folder, "seed-%d" % seed)
        cluster = self.cluster(folder, seed, True)
        began = time.monotonic()
        logs = os.path.join(self.o.logs, "seed-%d" % seed)
        try:
            joins = any(f.kind == "join-worker" for f in faults)
            cluster.run(faults, self.o.deadline,
                        8 * harness.SLOWNESS if self.o.late or joins else 0)
            wrong = self.check(cluster, want)
        except harness.Failure as e:
            wrong = [str(e)] + cluster.last_lines()
        seconds = time.monotonic() - began
        try:
            if wrong or self.o.keep:
                shutil.rmtree(logs, ignore_errors=True)
                cluster.keep_logs(logs)
                shutil.copytree(folder, os.path.join(logs, "folder"))
        finally:
            cluster.stop_all()
            if cluster.disk:
                cluster.disk.close()
            shutil.rmtree(folder, ignore_errors=True)
        if wrong:
            wrong.append("logs: " + logs)
        return wrong, cluster, seconds
