"""kill -9 of one of two servers between the last step and the end: nothing is lost, and all end
with 0, the killed one in its next life, though nobody is left to tell it."""
# label: cluster
import os
import signal

import harness

FLAGS = ["--batch_size=12", "--train_steps=24", "--seed=5", "--chunk_bytes=32768",
         "--intra_op_threads=1", "--fault_push_delay_ms=4"]
TRIES = 8  # a server that has nothing more to do ends within milliseconds


class VeryEnd(harness.Test):
    def killed(self, name, victim, mode):
        """A job whose server was killed when all workers had left it; and its folder."""
        for i in range(TRIES):
            folder = os.path.join(self.dir(), "%s-%d" % (name, i))
            flags = ["--checkpoint_dir=" + folder, "--save_steps=1000", "--worker_timeout=2"]
            job = self.job(n_ps=2, model="lenet5", flags=[*FLAGS, *mode])
            job.start(flags)
            for worker in (0, 1):
                job.ps[victim].wait_line("worker %d left" % worker)
            job.ps[victim].popen.send_signal(signal.SIGKILL)
            if job.ps[victim].wait(20, None) == -signal.SIGKILL:
                job.start_ps(victim, *flags, wait=False)
                return job, folder
            job.finish()
        self.fail("no server could be killed in time")

    def test_killed_at_the_end(self):
        """Three jobs at once, as what is killed waits for 10 s."""
        cases = [("leader", 0, []), ("follower", 1, []),
                 ("async", 1, ["--sync_mode=async"])]
        jobs = [self.killed(*case) for case in cases]
        for (name, victim, _), (job, folder) in zip(cases, jobs):
            summaries = job.finish(25)
            self.assertEqual(len({s["parameters_sha256"] for s in summaries}), 1, name)
            job.ps[victim].wait_line("has all its steps, and .* back|"
                                     "ps:0 says that the job is done")
            files = os.listdir(folder)
            self.assertIn("weir-24.json", files, name)
            self.assertEqual([f for f in files if f.startswith("up-")], [], name)


if __name__ == "__main__":
    harness.main()
