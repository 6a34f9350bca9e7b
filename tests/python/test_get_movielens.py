"""scripts/get_movielens, with files that the test makes: in a folder, and in a wheel on a server of
this machine, out of which pip fetches them. The worker trains with the result."""
# label: cluster
import csv
import http.server
import io
import os
import random
import re
import shlex
import threading
import zipfile

import harness

SCRIPT = harness.source("scripts/get_movielens")
PLACE = "recbole/dataset_example/ml-100k/ml-100k."
GENRES = ["Drama", "Children's Comedy", "Film-Noir Sci-Fi", "unknown"]


def make_files():
    """Returns the contents of the wheel's files; the ratings are not in the order of time."""
    rng = random.Random(5)
    users = ["%d\t%d\tF\twriter\t05201" % (u, 7 + u % 60) for u in range(1, 944)]
    items = ["%d\tFilm, The\t1994\t%s" % (i, GENRES[i % 4]) for i in range(1, 1683)]
    times = list(range(874724710, 874724710 + 100000))
    rng.shuffle(times)
    ratings = ["%d\t%d\t%d\t%d" % (rng.randint(1, 943), rng.randint(1, 1682), rng.randint(1, 5), t)
               for t in times]
    heads = {"user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token",
             "item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
             "inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float"}
    lines = {"user": users, "item": items, "inter": ratings}
    return {kind: "\n".join([heads[kind], *lines[kind]]) + "\n" for kind in heads}


FILES = make_files()


class Index(http.server.BaseHTTPRequestHandler):
    """An index of packages that has one wheel, and answers requests for ranges of bytes."""
    NAME, wheel = "recbole-1.2.1-py3-none-any.whl", b""

    def do_GET(self):
        if self.path.rstrip("/").endswith("/recbole"):
            link = '<a href="/%s">%s</a>' % (self.NAME, self.NAME)
            self.answer(200, link.encode(), "text/html")
        elif self.path != "/" + self.NAME:
            self.answer(404, b"", "text/plain")
        else:
            wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            first, last = (wanted.groups() if wanted else (0, ""))
            part = self.wheel[int(first):int(last) + 1 if last else None]
            self.answer(206 if wanted else 200, part, "application/zip")

    do_HEAD = do_GET

    def answer(self, status, content, form):
        self.send_response(status)
        self.send_header("Content-Type", form)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


class GetMovielens(harness.Test):
    def put(self, **changed):
        """Writes the files, some of them changed; returns their folder."""
        folder = self.path("files")
        os.makedirs(folder, exist_ok=True)
        for kind, content in {**FILES, **changed}.items():
            harness.write_file(os.path.join(folder, "ml-100k." + kind), content)
        return folder

    def make(self, *arguments, status=0, env=None):
        job = self.start("get_movielens", [SCRIPT, *arguments, self.path("movies")], env=env)
        return job.wait_output(60, status)

    def rows(self, name):
        with open(self.path("movies", name), encoding="utf-8", newline="") as f:
            return list(csv.reader(f))

    def check_result(self):
        head, *train = self.rows("train.csv")
        self.assertEqual(head, ["user_id", "item_id", "genre", "age", "liked"])
        head_of_test, *test = self.rows("test.csv")
        self.assertEqual(head_of_test, head)
        self.assertEqual((len(train), len(test)), (90000, 10000))
        ratings = [line.split("\t") for line in FILES["inter"].splitlines()[1:]]
        ratings.sort(key=lambda r: int(r[3]))
        for (user, item, stars, _), row in zip(ratings, train + test):
            self.assertEqual(row, [user, item, GENRES[int(item) % 4], str(7 + int(user) % 60),
                                   str(int(stars in "45"))])

    def test_files_of_a_folder(self):
        said = self.make("--files", self.put())
        self.assertIn("90000 samples in %s, 10000 in test.csv" % self.path("movies/train.csv"),
                      said)
        self.check_result()
        self.check_guide()

    def check_guide(self):
        """Runs the commands of docs/guide/sparse-models.md that train and read deepfm."""
        _, text = harness.read_source("docs/guide/sparse-models.md").split("## DeepFM on MovieLens")
        env = dict(os.environ, WEIR_BIN=harness.BIN, PATH=harness.BIN + ":" + os.environ["PATH"])
        commands = [shlex.split(line) for line in re.findall("\n    (.*)", text.split("\n## ")[0])]
        self.assertEqual([c[0] for c in commands], ["scripts/get_movielens", "scripts/run_local",
                                                    "worker", "worker", "weirctl"])
        os.rename(self.path("movies"), self.path("movielens"))
        said = []
        commands[1].insert(1, "--out=out")  # the default is in the source tree
        for name, *words in commands[1:]:
            words = ["--train_steps=30" if word == "--epochs=5" else word for word in words]
            job = self.start(name, [harness.source(name) if "/" in name else name, *words],
                             cwd=self.dir(), env=env)
            said.append(job.wait_output(90))
        self.assert_has(said[0], "column 1 'user_id' is keys of input 'fields': --key_columns",
                        "90000 rows, 1 feature", "global step: 30)")
        figures = [re.search(r"test accuracy: .*, test AUC: .* \(10000 samples\)", out).group()
                   for out in said[:3]]
        self.assertEqual(len(set(figures)), 1, figures)
        self.assertIn("full export of 1.1-30", said[3])
        self.assertEqual(len(harness.read_text(self.path("liked.csv")).splitlines()), 10001)

    def test_wheel_of_an_index(self):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as wheel:
            for kind, text in {**FILES, "kg": "not wanted\n", "link": "not wanted\n"}.items():
                wheel.writestr(PLACE + kind, text)
            wheel.writestr("recbole-1.2.1.dist-info/METADATA",
                           "Metadata-Version: 2.1\nName: recbole\nVersion: 1.2.1\n")
        Index.wheel = content.getvalue()
        server = http.server.ThreadingHTTPServer((harness.LOOPBACK, 0), Index)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        job = self.start("get_movielens", [SCRIPT, self.path("movies")], env=self.index(server))
        if job.wait(60, None) == harness.SKIPPED:
            self.assertIn("there is no pip", job.output())
            self.skipTest(job.output())
        self.assertEqual(job.status, 0, job.output())
        self.assertIn("3 files", job.output())
        self.check_result()

    def index(self, server):
        """Returns the environment in which pip reads only this index."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("PIP_") and not k.lower().endswith("_proxy")}
        return {**env, "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0",
                "PIP_INDEX_URL": "http://%s:%d/simple/" % server.server_address}

    def test_no_wheel(self):
        said = self.make(status=harness.SKIPPED, env={**os.environ, "PIP_NO_INDEX": "1",
                                                      "PIP_FIND_LINKS": self.dir()})
        self.assertRegex(said, "pip finds no wheel of recbole==1.2.1|there is no pip")
        self.assertIn("name its copy here by --files", said)
        self.assertFalse(os.path.exists(self.path("movies")))

    def test_other_files_refused(self):
        lines = FILES["inter"].splitlines(True)
        for changed, message in (
                ({"inter": "".join(lines[:-1])}, "99999 lines below the first one, not 100000"),
                ({"item": FILES["item"].replace("class:", "genre:")}, "has no column class"),
                ({"user": FILES["user"].replace("\n5\t", "\n6\t")}, "942 different users, not 943"),
                ({"user": FILES["user"].replace("\n5\t", "\n1000\t")}, "a rating of user 5 and"),
                ({"inter": "".join([lines[0], "1\t1\t5\n", *lines[2:]])},
                 "line 2 has 3 columns, not 4"),
                ({"inter": ""}, "has no column timestamp")):
            self.assertIn(message, self.make("--files", self.put(**changed), status=1))
            self.assertFalse(os.path.exists(self.path("movies")))
        self.assertIn("No such file", self.make("--files", self.path("none"), status=1))


if __name__ == "__main__":
    harness.main()
