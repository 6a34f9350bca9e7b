"""kill -9 between the last step and the end of a job. Nothing is lost, and all programs exit with
0, the killed one after its restart. In some tests this is a server, when all workers have left. In
others it is a worker that evaluates or writes its figures, and the servers wait for it."""
# label: cluster waits
import os
import signal

import ckpt_folder
import harness

FLAGS = ["--batch_size=12", "--train_steps=24", "--seed=5", "--chunk_bytes=5120",
         "--intra_op_threads=1", "--fault_push_delay_ms=4"]
TRIES = 40  # a server that has finished its work exits within milliseconds


class VeryEnd(harness.Test):
    def killed(self, name, victim, mode):
        """Returns a job whose server was killed when all workers had left it, and its folder."""
        for i in range(TRIES):
            folder = self.path("%s-%d" % (name, i))
            flags = ["--checkpoint_dir=" + folder, "--save_steps=1000", "--worker_timeout=2"]
            job = self.started_job(n_ps=2, model="small", flags=[*FLAGS, *mode], ps_flags=flags)
            for worker in (0, 1):
                job.ps[victim].wait_line("worker %d left" % worker)
            job.ps[victim].popen.send_signal(signal.SIGKILL)
            killed = job.ps[victim].wait(20, None) == -signal.SIGKILL
            if killed and self.is_marked_running(folder, job.ps_hosts[victim]):
                job.start_ps(victim, *flags, wait=False)
                return job, folder
            for process in (*job.workers, *job.ps):
                if process is not job.ps[victim] or not killed:
                    process.wait(60)
        self.fail("no server could be killed in time")

    def is_marked_running(self, folder, address):
        """Returns whether the server's file in the folder still marks the server as running. A
        server that removes its file and is killed before it exits would be a new server after its
        restart."""
        return os.path.exists(os.path.join(folder, "up-" + address))

    def test_server_killed_after_last_step_loses_nothing(self):
        """Three jobs run at once, because restarted servers wait for 10 s."""
        cases = [("leader", 0, []), ("follower", 1, []),
                 ("async", 1, ["--sync_mode=async"])]
        jobs = [self.killed(*case) for case in cases]
        for (name, victim, _), (job, folder) in zip(cases, jobs):
            job.finish_alike()
            job.ps[victim].wait_line("has completed its steps, and .* is done|"
                                     "ps:0 reports that the job is done")
            files = os.listdir(folder)
            self.assertIn(24, ckpt_folder.steps(folder), name)
            self.assertEqual([f for f in files if f.startswith("up-")], [], name)

    def reporting(self, *ps_flags):
        """Starts a job of two servers and two workers. At their end the workers wait, because they
        write their figures to FIFOs that no process reads yet."""
        job = self.job(n_ps=2, model="small", flags=FLAGS)
        figures = [job.summary_path(task) for task in (0, 1)]
        for path in figures:
            os.mkfifo(path)
        job.start_servers(*ps_flags)
        for task in (0, 1):
            self.start_reporter(job, task)
        return job, figures

    def start_reporter(self, job, task):
        return job.start_worker(task, "--export=%s-%d" % (job.summary_path(0), task))

    def test_worker_killed_in_its_report_ends_in_next_life(self):
        """First a worker is killed in its evaluation, while the other worker reports. Then a worker
        is killed when it has written all but its figures, and the other worker has exited."""
        for line, alone in (("Training elapsed time: ", False), ("exported [0-9]+ param", True)):
            job, figures = self.reporting()
            job.workers[0].wait_line(line)
            job.workers[0].kill()
            os.remove(figures[0])
            if alone:
                other = harness.read_json(figures[1])
                job.workers[1].wait(20)
            self.start_reporter(job, 0).wait(30)
            if not alone:
                other = harness.read_json(figures[1])
            self.wait_all((job.workers[1], *job.ps), 20)
            self.assertEqual(job.summary(0)["parameters_sha256"], other["parameters_sha256"])
            self.assertEqual(job.summary(0)["global_step"], 24)

    def test_worker_lost_in_its_report_does_not_block_end(self):
        """A worker is killed in its report and does not return within --worker_timeout. The job
        ends without this worker."""
        job, figures = self.reporting("--worker_timeout=1")
        self.wait_lines(job.workers, "exported [0-9]+ param")
        job.workers[0].kill()
        job.ps[0].wait_line("worker 0 .* has not returned for 1 s")
        harness.read_json(figures[1])
        self.wait_all((job.workers[1], *job.ps), 30)


harness.main(__name__)
