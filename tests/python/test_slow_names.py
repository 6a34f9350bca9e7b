"""The first of two name servers never answers, so each look-up lasts at least 5 s before the second
one is asked. A ps 0 waits less than that for an answer of a folder's owner, but must not regard the
owner as lost. A worker's first call to a job has a shorter deadline, too, but the worker must
join."""
# label: net waits
import os
import unittest

import harness
import namespaces

WHY_NOT = namespaces.why_not()
NAMED = """import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.2", 53))
print("answers", flush=True)
while True:
    query, client = s.recvfrom(2000)
    end = 12
    while query[end]:
        end += query[end] + 1
    question = query[12:end + 5]
    is_a = question[-3] == 1
    answer = b"\\xc0\\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton("127.0.0.1")
    head = query[:2] + b"\\x84\\x00" + struct.pack(">HHHH", 1, is_a, 0, 0)
    s.sendto(head + question + answer * is_a, client)
"""


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SlowNames(harness.Test):
    def setUp(self):
        super().setUp()
        self.space = namespaces.Namespace(("unshare", "--net", "--mount", "sh", "-c",
                                           "echo up; exec cat"), test=self)
        self.space.enter.append("--mount")
        self.space.ip("link set lo up", "link add here type veth peer name there",
                      "address add 10.85.0.1/24 dev here", "link set here up", "link set there up",
                      "neighbour add 10.85.0.9 lladdr 02:00:00:00:00:09 dev here")
        self.lay_over("/etc/resolv.conf", "nameserver 10.85.0.9\nnameserver 127.0.0.2\n")
        self.lay_over("/etc/nsswitch.conf", "hosts: files dns\n")

    def start(self, name, argv, **kwargs):
        return super().start(name, [*self.space.enter, *argv], **kwargs)

    def lay_over(self, path, text):
        own = self.write(os.path.basename(path), text)
        namespaces.run(*self.space.enter, "mount", "--bind", own, path)

    def start_ps(self, name, address, *flags, ready=True):
        ps = self.start(
            name, [harness.program("ps"), "--ps_hosts=" + address, "--worker_hosts=127.0.0.1:1",
                   "--checkpoint_dir=" + self.path("folder"), *flags], ready=ready)
        if ready:
            ps.wait_ready(60)
        return ps

    def name_server(self):
        named = self.start("named", ["python3", "-B", "-c", NAMED])
        named.wait_line("answers")
        return named

    def test_folder_owner_with_slow_name_found_running(self):
        named = self.name_server()
        first = self.start_ps("first", "ps0.test:2221", "--bind=127.0.0.1:2221")
        self.assertIn("belongs to a running job, whose ps:0 answers at ps0.test:2221",
                      self.start_ps("second", "127.0.0.3:2222", ready=False).wait_output(60, 1))
        named.stop(9, status=-9)
        third = self.start_ps("third", "127.0.0.3:2222", ready=False)
        self.assertIn("belongs to ps:0 at ps0.test:2221, and it is unknown whether that process is "
                      "running (no name server answers for its name)", third.wait_output(90, 1))
        first.stop()

    def worker(self, name, address, *flags):
        return self.start(name, [harness.program("worker"), "--ps_hosts=" + address,
                                        "--batch_size=12", "--progress=lines",
                                        "--data_dir=" + self.data(), *flags])

    def test_job_with_slow_name_joined(self):
        named = self.name_server()
        ps = self.start_ps("ps", "ps0.test:2221", "--bind=127.0.0.1:2221")
        first = self.worker("first", "127.0.0.1:2221", "--worker_hosts=127.0.0.1:1",
                            "--model=softmax", "--models_dir=" + harness.MODELS,
                            "--train_steps=10000000", "--fault_push_delay_ms=50")
        first.wait_line(r"global step: [1-9]")
        joiner = self.worker("joiner", "ps0.test:2221", "--join")
        joiner.wait_line("joined as worker 1 of 2", 60)
        self.kill(joiner, first, ps, named)

    def test_server_with_slow_name_not_reported_missing(self):
        """The look-up of the server's name is slow, but the worker must not log that the server
        does not answer."""
        named = self.name_server()
        both = "--worker_hosts=127.0.0.1:1,127.0.0.1:2"
        ps = self.start_ps("ps", "ps0.test:2221", "--bind=127.0.0.1:2221", both)
        worker = self.worker("worker", "ps0.test:2221", both, "--task_index=0",
                             "--model=softmax", "--models_dir=" + harness.MODELS,
                             "--train_steps=10")
        worker.wait_line(r"waiting for worker 1 \(never joined\), \d+ s so far$", 60)
        self.assertNotIn("no answer", worker.output())
        self.kill(worker, ps, named)


harness.main(__name__)
