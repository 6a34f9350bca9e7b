#!/usr/bin/python3
"""docs/guide/sparse-models.md: its example trains, its checkpoint predicts with the AUC of the job,
and its error is the worker's."""
# label: cluster
import json
import os
import random
import re

import harness

PAGE = harness.read_source("docs/guide/sparse-models.md")
HEAD = "user,item,price,liked"


def rows(n, seed):
    """Returns lines of a user, an item, a price and a label, which follows from the user."""
    rng = random.Random(seed)
    users = [rng.randrange(20) for _ in range(n)]
    return ["u%d,i%d,%.2f,%d" % (u, rng.randrange(30), rng.random(), u < 10) for u in users]


class SparseGuide(harness.Test):
    def setUp(self):
        super().setUp()
        block = re.search(r"^    {\n.*?^    }\n", PAGE, re.MULTILINE | re.DOTALL).group()
        self.text = re.sub(r"^    ", "", block, flags=re.MULTILINE)
        os.makedirs(self.path("shop"))
        for part, n in (("train", 600), ("test", 200)):
            self.write("shop/%s.csv" % part, "\n".join([HEAD] + rows(n, n)) + "\n")

    def test_example_trains_and_predicts(self):
        self.assertIn("\n    %s\n" % HEAD, PAGE)
        job = self.started_job(data=self.path("shop"), model=self.write("shop.json", self.text),
                               flags=["--label_column=liked", "--train_steps=60",
                                      "--batch_size=20", "--intra_op_threads=1"],
                               ps_flags=["--checkpoint_dir=" + self.path("saved")])
        auc = job.finish_alike()[0]["test_auc"]
        self.assertIn("table 'factors': a row of 8 floats for each key of input 'fields', at most "
                      "1000000 rows; adagrad", job.workers[0].output())
        self.assertGreater(auc, 0.9)
        line = "test AUC: %.4f" % auc
        out = self.run_worker("--predict=" + self.path("saved"), "--output=" + self.path("p.csv"),
                              "--intra_op_threads=1", data=self.path("shop"), model=None).output()
        self.assertIn(line, out)

    def test_error_is_that_of_the_worker(self):
        (error,) = re.findall(r"^    model shop.json, (.*)", PAGE, re.MULTILINE)
        text = self.text.replace('"input": "numbers"', '"input": "fields"')
        self.assertNotEqual(text, self.text)
        model = self.write("shop.json", text)
        hosts = ["--ps_hosts=%s:9" % harness.LOOPBACK, "--worker_hosts=%s:10" % harness.LOOPBACK,
                 "--task_index=0"]
        out = self.run_worker(*hosts, "--label_column=liked", data=self.path("shop"), model=model,
                              status=1).output()
        self.assertIn("model %s, %s" % (model, error), out)

    def test_settings_are_json(self):
        settings = json.loads(re.search(r"`({\"optimizer\".*?})`", PAGE).group(1))
        text = json.loads(self.text)
        text["layers"][0]["settings"] = settings
        job = self.started_job(data=self.path("shop"), n_workers=1,
                               model=self.write("shop.json", json.dumps(text)),
                               flags=["--label_column=liked", "--train_steps=2"])
        job.finish_alike()


harness.main(__name__)
