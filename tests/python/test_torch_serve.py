#!/usr/bin/python3
"""examples/python/clicks_serve.py answers with the scores, the step and the last steps of the rows
of the newest checkpoint: after a patch, after errors, and after all rows when the patch's base is
deleted."""
# label: cluster long
import http.client
import json
import os
import shutil
import sys

import harness
import torch_case

import weir
from weir import checkpoint

EXAMPLES = harness.source("examples/python")


class Serve(torch_case.Torch):
    def train(self, steps):
        """Trains to a step, which the last checkpoint has."""
        with weir.Cluster(command=[sys.executable, os.path.join(EXAMPLES, "clicks_weir.py"),
                                   self.data, "--train_steps=%d" % steps, "--batch_size=32"],
                          checkpoint_dir=self.kept) as cluster:
            cluster.wait(120 * harness.PATIENCE)

    def serve(self, programs):
        return self.start("serve", [
            sys.executable, os.path.join(EXAMPLES, "clicks_serve.py"), self.kept, "--port=0"],
            env={**harness.package_env(), "WEIR_PROGRAMS": programs})

    def ask(self, question):
        connection = http.client.HTTPConnection("localhost", self.port, timeout=harness.PATIENCE)
        connection.request("POST", "/", json.dumps(question))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def check(self, step, patches):
        """Waits until the step is served, and compares the answers with the checkpoint."""
        self.server.wait_line("^serves step %d after %d patches$" % (step, patches))
        found = checkpoint.read(self.kept)
        table = found.tables["keys"]
        places = {key: i for i, key in enumerate(table.keys)}
        net = self.clicks.Net(self.torch.nn.Embedding(len(places) or 1, self.clicks.DIM))
        net.load_state_dict({name: self.torch.tensor(v.tolist())
                             for name, v in found.tensors.items()}, strict=False)
        net.rows.weight.data = self.torch.tensor(table.rows.tolist())
        known = next(iter(places))
        for keys in [[known] * 26, *self.keys]:
            keys = [key % 2**64 for key in keys]
            status, answer = self.ask({"keys": keys, "dense": [0.5] * 13})
            self.assertEqual((status, answer["step"]), (200, step))
            self.assertEqual(answer["last_steps"], [
                table.steps[places[key]] if key in places else 0 for key in keys])
            if all(key in places for key in keys):
                with self.torch.no_grad():
                    want = net(self.torch.tensor([[places[key] for key in keys]]),
                               self.torch.full((1, 13), 0.5)).sigmoid().item()
                self.assertAlmostEqual(answer["score"], want, 5)
            self.assertTrue(0 < answer["score"] < 1)

    def test_answers_follow_the_job(self):
        sys.path.insert(0, EXAMPLES)
        import clicks  # pylint: disable=import-error,import-outside-toplevel
        self.clicks, self.data, self.kept = clicks, self.path("clicks"), self.new_folder("kept")
        harness.check_output([harness.source("scripts/make_data"), "--clicks", "--out=" + self.data,
                              "--train=2000", "--test=500"])
        self.keys = clicks.load(self.data + "/train.safetensors")[0][:20].tolist()
        programs = self.new_folder("programs")
        self.server = self.serve(programs)
        self.port = int(self.server.wait_line(r"^listens at http://localhost:(\d+)$").group(1))
        self.assertEqual(self.ask({"keys": [1] * 26, "dense": [0] * 13}),
                         (503, {"error": "no checkpoint yet"}))
        self.server.wait_line("^Error: weir: there is no program weirctl in ")
        os.symlink(harness.program("weirctl"), os.path.join(programs, "weirctl"))
        self.server.wait_line("has no checkpoint yet; try again when the job has written one$")
        self.train(10)
        self.check(10, 0)
        keys, dense = [1] * 26, [0] * 13
        for question, why in (({"keys": keys[1:], "dense": dense}, '"keys" must be a list of 26 '
                               'whole numbers'),
                              ({"keys": [1.5] * 26, "dense": dense}, '"keys" must be a list'),
                              ({"keys": keys, "dense": dense * 2}, '"dense" must be a list of 13 '
                               'numbers'),
                              ({"keys": keys}, '"dense" must be'), ([], '"keys" must be')):
            status, answer = self.ask(question)
            self.assertEqual(status, 400)
            self.assertIn(why, answer["error"])
        self.server.wait_line("is the newest checkpoint; try again after the next one$")
        away = self.kept + "-away"
        os.rename(self.kept, away)
        self.server.wait_line("^weirctl --checkpoint_dir=.*: No such file or directory$")
        self.assertEqual(self.ask({"keys": keys, "dense": dense})[1]["step"], 10)
        os.rename(away, self.kept)
        self.train(20)
        self.check(20, 1)
        shutil.rmtree(self.kept)
        os.mkdir(self.kept)
        self.train(30)
        self.check(30, 0)
        self.assertIn("begin again with a full export", self.server.output())
        self.server.kill()
        harness.write_file(os.path.join(self.kept, "weir-9.1-99.json"), b"{}")
        server = self.serve(programs)  # it prints the warning of an export that succeeds
        server.wait_line("weir-9.1-99.json: not exported: .*; trying the previous checkpoint$")
        server.wait_line("^serves step 30 after 0 patches$")
        server.kill()


harness.main(__name__)
