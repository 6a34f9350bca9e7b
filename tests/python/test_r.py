#!/usr/bin/python3
"""The R package `weir`, if R is installed. The tests compile it against an installed libweir and
run its own tests. Members in R train in jobs whose processes are killed or interrupted, and share
parameters with a member in Python. The package reads a job's status and event files. An operator
runs scripts/check_r, which tests more."""
# label: cluster computes
import array
import glob
import os
import re
import shutil
import signal
import tempfile
import unittest

import harness

harness.use_package()
import weir  # noqa: E402

PACKAGE = harness.source("r/weir")
STEPS = 60
# A member whose parameters depend on its samples. In step 20 it pushes one of its two gradients,
# and then waits for the test.
MEMBER = r"""
library(weir)
flags <- weir_flags()
m <- do.call(weir_open, c(list(train_steps = %d, batch_size = 4, seed = 3), flags$settings))
weir_params(m, list(w = matrix(0.1, 30, 7), b = numeric(3)))
last <- weir_steps(m, on_interrupt = "leave", function(step) {
    cat(sprintf("step %%.0f of %%.0f members\n", step$step, step$n_members))
    v <- weir_values(m)
    g <- v$w * 0
    for (item in weir_samples(m, step, 100))
        g[1 + item %%%% 30, ] <- g[1 + item %%%% 30, ] + v$w[1 + item %%%% 30, ] - item / 100
    weir_push(m, list(b = v$b - item), samples = 4)
    while (step$step == 20 && !file.exists(flags$others)) Sys.sleep(0.01)
    weir_push(m, list(w = g), samples = 4)
})
cat("result", m$result, "bits", sprintf("%%a", unlist(last)), "\n")
""" % STEPS
# A member in a job with a member in Python. It checks the indices of elements.
SHARED = r"""
library(weir)
m <- do.call(weir_open, c(list(train_steps = 2, optimizer = "sgd", learning_rate = 1),
                          weir_flags()$settings))
weir_params(m, list(matrix = matrix(1:6, 2, 3), cube = array(1:24, c(2, 3, 4)), vector = 1:5))
step <- weir_next(m)
v <- weir_values(m)
stopifnot(v$matrix == matrix(1:6, 2, 3), v$cube == array(1:24, c(2, 3, 4)))
if (requireNamespace("jsonlite", quietly = TRUE)) {
    members <- weir_status(strsplit(weir_flags()$settings$ps_hosts, ",")[[1]])$members
    stopifnot(is.data.frame(members), nrow(members) == 2, c("index", "state") %in% names(members))
}
g <- lapply(v, function(p) { p[] <- 0; p })
g$matrix[2, 3] <- 2
g$cube[1, 2, 4] <- 2
weir_push(m, g, samples = 1)
weir_next(m)
v <- weir_values(m)
stopifnot(v$matrix[1, 3] == 5 - 10, v$matrix[2, 3] == 6 - 1, v$cube[1, 2, 4] == 21 - 1)
weir_push(m, samples = 0)
stopifnot(is.null(weir_next(m)))
weir_close(m)
cat("all is where it should be\n")
"""
# A member that sets factors, and lacks gradients in some steps.
LACKS = r"""
library(weir)
m <- do.call(weir_open, c(list(train_steps = 4, optimizer = "momentum", learning_rate = 1),
                          weir_flags()$settings))
weir_params(m, list(a = c(1, 2), b = c(1, 2)), rate = c(b = 0.5), decay = c(a = 0))
weir_steps(m, function(step) {
    v <- weir_values(m)
    weir_step_rate(m, 1 / (1 + step$step))
    weir_push(m, list(a = v$a, b = if (step$step == 0) v$b), samples = 1)
    cat(sprintf("step %.0f %a %a\n", step$step, v$b[1], v$b[2]))
})
"""
# A member that makes local steps by its own rule, and whose forked children must not use it.
OWN = r"""
library(weir)
m <- do.call(weir_open, c(list(train_steps = 6, local_steps = 3, own_local_steps = TRUE,
                               outer_optimizer = "sgd", outer_learning_rate = 1),
                          weir_flags()$settings))
weir_params(m, list(x = c(5, 1)))
weir_next(m)
e <- tryCatch(weir_push(m, list(x = c(1, 1)), samples = 1), weir_invalid = identity)
stopifnot(grepl("x: weir_push_values is for", conditionMessage(e)))
weir_push_values(m, list(x = c(4, 0.5)), samples = 1)
stopifnot(weir_wait(m), weir_values(m)$x == c(4, 0.5))
weir_pull(m)
stopifnot(inherits(try(weir_values(m), silent = TRUE), "try-error"), weir_wait(m, "x"))
forked <- parallel::mclapply(1:2, function(i) try(weir_values(m), silent = TRUE), mc.cores = 2)
stopifnot(grepl("does not survive a fork", unlist(forked)))
weir_next(m)
weir_push(m, samples = 0)
stopifnot(is.null(weir_next(m)), m$result == "done")
weir_close(m)
cat("as it should be\n")
"""
# A member that begins a step early. The other member exits before all values of the step have
# arrived.
EARLY = r"""
library(weir)
m <- do.call(weir_open, c(list(train_steps = 3), weir_flags()$settings))
weir_params(m, list(large = numeric(20000), small = 1))
weir_next(m)
weir_push(m, weir_values(m), samples = 1)
stopifnot(weir_next(m, early = TRUE)$step == 1)
cat("step 1\n")
stopifnot(!weir_wait(m))
weir_push(m, list(small = 1), samples = 1)
weir_push(m, samples = 0)
step <- weir_next(m)
stopifnot(step$began, step$n_members == 1)
while (!is.null(step)) {
    weir_push(m, weir_values(m), samples = 1)
    step <- weir_next(m)
}
stopifnot(m$result == "done")
weir_close(m)
cat("it went on\n")
"""
WAITING = r"""
library(weir)
m <- weir_open(ps_hosts = "%s", n_workers = 1, task_index = 0)
weir_params(m, list(x = 1))
weir_log("info")
tryCatch(withCallingHandlers(weir_next(m), weir_log = function(e) cat("waits\n")),
         interrupt = function(i) cat("interrupted\n"))
e <- tryCatch(weir_next(m, timeout = 0.1), weir_timeout = identity)
cat(conditionMessage(e), "\n")
"""
CURVE = r"""
library(weir)
found <- weir_scalars(commandArgs(TRUE))
for (i in seq_len(nrow(found)))
    cat(found$run[i], found$tag[i], found$step[i], sprintf("%.9g", found$value[i]), "\n")
"""


class Declared(unittest.TestCase):
    def test_settings_match_pythons(self):
        """The settings of the R package are those of the Python package, which test_python.py
        compares with those of libweir."""
        listed = re.search(r"SETTINGS <- c\((.*?)\)", harness.read_source("r/weir/R/settings.R"),
                           re.S).group(1)
        self.assertEqual(tuple(re.findall(r'"(\w+)"', listed)), weir.SETTINGS)

    def test_exported_functions_have_pages(self):
        exported = re.search(r"export\((.*?)\)", harness.read_source("r/weir/NAMESPACE"),
                             re.S).group(1)
        pages = "".join(harness.read_source(page) for page in glob.glob(PACKAGE + "/man/*.Rd"))
        self.assertEqual(sorted(re.findall(r"\w+", exported)),
                         sorted(a for a in re.findall(r"\\alias\{(\w+)\}", pages) if "_" in a))

    def test_codes_match_header(self):
        """R's names of codes are those of weir.h."""
        listed = re.search(r"enum weir_code \{(.*?)\};", harness.read_source("libweir/weir.h"),
                           re.S).group(1)
        codes = dict(re.findall(r"WEIR_(?:E_)?(\w+) = (-?\d+)", listed))
        said = harness.read_source("r/weir/R/conditions.R")
        for name in ["INVALID", *(k for k, v in codes.items() if int(v) > 0)]:
            self.assertIn("%s <- %sL\n" % (name, codes[name]), said)
        kinds = {name.upper(): n for n, name in re.findall(r'"(-\d)" = "(\w+)"', said)}
        kinds["NOMEM"] = kinds.pop("MEMORY")
        self.assertEqual(kinds, {k: v for k, v in codes.items() if v.startswith("-") and
                                 k != "INTERNAL"})


@unittest.skipIf(harness.SANITIZE, "R is no program with a sanitizer")
@unittest.skipUnless(shutil.which("R"), "R is not installed (Debian's r-base-core)")
class InR(harness.Test):
    @classmethod
    def setUpClass(cls):
        """Compiles the package as users do, with libweir as `cmake --install` leaves it."""
        super().setUpClass()
        cls.folder = tempfile.mkdtemp(prefix="weir-r-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        lib, include, pc = (os.path.join(cls.folder, d)
                            for d in ("lib", "include", "lib/pkgconfig"))
        for d in (include, pc, os.path.join(cls.folder, "r")):
            os.makedirs(d)
        for so in glob.glob(os.path.dirname(harness.LIBRARY) + "/libweir.so*"):
            shutil.copy2(so, lib, follow_symlinks=False)
        shutil.copy(harness.source("libweir/weir.h"), include)
        shutil.copy(os.path.join(harness.BIN, "../weir.pc"), pc)
        cls.env = dict(os.environ, PKG_CONFIG_PATH=pc, R_LIBS=os.path.join(cls.folder, "r"))
        done = harness.run(["R", "CMD", "INSTALL", "--preclean", "--no-docs", "--no-test-load",
                            "--library=" + cls.folder + "/r", cls.copy()], env=cls.env,
                           timeout=120 * harness.PATIENCE)
        if done.returncode:
            raise harness.Failure(done.stdout)

    @classmethod
    def copy(cls):
        """Copies the package, because nothing may be compiled in the source tree."""
        return shutil.copytree(PACKAGE, os.path.join(cls.folder, "source"))

    def r(self, name, text, *args):
        path = self.write(name + ".R", text)
        return self.start(name, ["Rscript", path, *args], env=self.env)

    def ps(self):
        hosts = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        ps = self.start_program("ps", "--ps_hosts=" + hosts, ready=True)
        ps.wait_ready()
        return ps, hosts

    def member(self, hosts, task, gate):
        return self.r("member:%d" % task, MEMBER, "--ps_hosts=" + hosts, "--n_workers=2",
                      "--task_index=%d" % task, gate)

    def tests_of_the_package_pass(self):
        self.start("alone", ["Rscript", PACKAGE + "/tests/alone.R"], env=self.env).wait(60)

    def bits(self, disturb):
        ps, hosts = self.ps()
        gate = self.path("gate-%d" % disturb)
        members = [self.member(hosts, i, gate) for i in range(2)]
        if disturb:
            members[1].wait_line("^step 20 ")
            members[1].kill()
            members[1] = self.member(hosts, 1, gate)
            members[1].wait_line("^step 20 ")
        with open(gate, "w", encoding="ascii"):
            pass
        self.wait_all((*members, ps), 60)
        said = {m.wait_line("^result done bits .*").group(0) for m in members}
        self.assertEqual(len(said), 1)
        return said

    def test_killed_member_changes_no_bit(self):
        self.assertEqual(self.bits(True), self.bits(False))

    def test_interrupted_member_leaves(self):
        """After SIGINT, as from Ctrl-C, a training member leaves in order. A waiting member reports
        the interrupt at once."""
        ps, hosts = self.ps()
        gate = self.path("gate")
        members = [self.member(hosts, i, gate) for i in range(2)]
        self.wait_lines(members, "^step 20 of 2")
        waiting = self.r("waiting", WAITING % ("%s:1" % harness.LOOPBACK))
        waiting.wait_line("^waits")
        waiting.popen.send_signal(signal.SIGINT)
        waiting.wait_line("^interrupted")
        waiting.wait_line("^no step within 0.1 s")
        waiting.wait(60)
        members[1].popen.send_signal(signal.SIGINT)
        with open(gate, "w", encoding="ascii"):
            pass
        members[1].wait_line("^result left")
        members[0].wait_line("of 1 members")
        self.wait_all((*members, ps), 60)

    def test_elements_match_pythons(self):
        """The same indices name the same element, in both directions."""
        ps, hosts = self.ps()
        other = self.r("shared", SHARED, "--ps_hosts=" + hosts, "--n_workers=2", "--task_index=0")
        with weir.Member(ps_hosts=hosts, n_workers=2, task_index=1, train_steps=2,
                         optimizer="sgd", learning_rate=1) as m:
            matrix, cube = m.param("matrix", (2, 3)), m.param("cube", (2, 3, 4))
            vector = m.param("vector", (5,))
            step = m.next(timeout=60 * harness.PATIENCE)
            self.assertEqual(step.step, 0)
            self.assertEqual(m.values(matrix).tolist(), [[1, 3, 5], [2, 4, 6]])
            self.assertEqual(m.values(cube)[1, 2, 3], 24)
            self.assertEqual(m.values(cube)[1, 0, 0], 2)
            self.assertEqual(m.values(vector).tolist(), [1, 2, 3, 4, 5])
            m.gradient(matrix)[0, 2] = 20
            for p in (matrix, cube, vector):
                m.push(p, samples=1)
            m.next()
            self.assertEqual(m.values(matrix).tolist(), [[1, 3, -5], [2, 4, 5]])
            self.assertEqual(m.values(cube)[0, 1, 3], 20)
            for p in (matrix, cube, vector):
                m.push(p, samples=0)
            self.assertIsNone(m.next())
        other.wait_line("^all is where it should be")
        self.wait_all((other, ps), 60)

    def test_factors_and_missing_gradients_match_pythons(self):
        """Both members have a gradient of b in step 0, only the one in Python in step 1, and none
        in later steps."""
        ps, hosts = self.ps()
        other = self.r("lacks", LACKS, "--ps_hosts=" + hosts, "--n_workers=2", "--task_index=0")
        seen = []
        with weir.Member(ps_hosts=hosts, n_workers=2, task_index=1, train_steps=4,
                         optimizer="momentum", learning_rate=1) as m:
            a, b = m.param("a", (2,), decay=0), m.param("b", (2,), rate=0.5)
            while step := m.next(timeout=60 * harness.PATIENCE):
                seen.append(m.values(b).tolist())
                m.step_rate(1 / (1 + step.step))
                m.push(a, array.array("f", [1, 1]), samples=3)
                m.push(b, array.array("f", [1, 3]) if step.step < 2 else None, samples=3)
        self.assertEqual(seen[2:], seen[2:3] * 2)
        velocity = [1, (2 + 3 * 3) / 4]
        want = [[1, 2], [1 - 0.5 * velocity[0], 2 - 0.5 * velocity[1]]]
        velocity = [0.9 * velocity[0] + 3 / 4, 0.9 * velocity[1] + 9 / 4]
        want.append([v - 0.25 * d for v, d in zip(want[1], velocity)])
        for got, expected in zip(seen, want):
            for i in range(2):
                self.assertAlmostEqual(got[i], expected[i], delta=1e-6)
        self.wait_all((other, ps), 60)
        self.assertEqual([[float.fromhex(v) for v in line.split()[2:]] for line in other.lines
                          if line.startswith("step ")], seen)

    def test_rolled_back_step_ends_early(self):
        ps, hosts = self.ps()
        early = self.r("early", EARLY, "--ps_hosts=" + hosts, "--n_workers=2", "--task_index=0")
        with weir.Member(ps_hosts=hosts, n_workers=2, task_index=1, train_steps=3) as m:
            large = m.param("large", (20000,))
            m.param("small", (1,))
            m.next(timeout=60 * harness.PATIENCE)
            m.push(large, samples=1)
            m.wait(large)  # this member pushes no gradient of `small`
            early.wait_line("^step 1")
            m.leave_failed("as the test wants it")
        early.wait_line("^it went on")
        self.wait_all((early, ps), 60)

    def test_own_local_steps_of_r_train(self):
        ps, hosts = self.ps()
        own = self.r("own", OWN, "--ps_hosts=" + hosts, "--n_workers=1", "--task_index=0")
        own.wait_line("^as it should be")
        self.wait_all((own, ps), 60)

    def test_figures_of_worker_readable(self):
        log = self.path("log")
        worker = self.run_worker("--train_steps=40", "--batch_size=10", "--logdir=" + log,
                                 "--summary_steps=10", "--intra_op_threads=1")
        self.env = dict(self.env, HOME=self.dir())
        curve = self.r("curve", CURVE, "~/log")
        curve.wait(60)
        rows = [line.split() for line in curve.lines]
        self.assertEqual({row[0] for row in rows},
                         {os.path.relpath(os.path.dirname(file), log) for file in glob.glob(
                             log + "/**/*tfevents*", recursive=True)})
        losses = {int(step): float(value) for run, tag, step, value in rows if tag == "loss"}
        self.assertEqual(sorted(losses), [10, 20, 30, 40])
        last = float(re.search(r"global step: 40\), loss ([\d.]+)", worker.output()).group(1))
        self.assertAlmostEqual(losses[40], last, delta=1e-4)


harness.main(__name__)
