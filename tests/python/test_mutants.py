"""tests/emulation/mutants finds the code that it removes from kernels/cuda by patterns. These tests
run no mutant. They check that each call has a mutant, and that the list of names in the script is
up to date. The code must also contain each text that tests/sim/mutants replaces."""
# label: unit
import argparse
import glob
import importlib.machinery
import importlib.util
import os
import re
import sys
import tempfile
import threading

import harness

FOLDER = harness.source("kernels/cuda")
SCRIPT = harness.source("tests/emulation/mutants")
SIMULATED = harness.source("tests/sim/mutants")


def load(script):
    loader = importlib.machinery.SourceFileLoader("mutants", script)
    mutants = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("mutants", loader))
    loader.exec_module(mutants)
    return mutants


class Mutants(harness.Test):
    def list(self, script=SCRIPT, status=0):
        done = harness.run([sys.executable, "-B", script, "--list"])
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def changed(self, name, old, new):
        """Returns the output of the script for a tree with this change."""
        with tempfile.TemporaryDirectory(prefix="weir-mutants-") as root:
            os.makedirs(os.path.join(root, "tests/emulation"))
            for place, _, files in os.walk(FOLDER):
                copy = os.path.join(root, os.path.relpath(place, harness.SOURCE))
                os.makedirs(copy)
                for file in files:
                    os.symlink(os.path.join(place, file), os.path.join(copy, file))
            script = os.path.join(root, "tests/emulation/mutants")
            with open(SCRIPT, encoding="utf-8") as f, open(script, "w", encoding="utf-8") as out:
                out.write(f.read())
            path, = glob.glob(os.path.join(root, "kernels/cuda/*", name))
            text = harness.read_text(path)
            os.unlink(path)
            self.assertEqual(text.count(old), 1)
            harness.write_file(path, text.replace(old, new))
            return self.list(script, 1)

    def test_every_form_found(self):
        lines = self.list().splitlines()
        for kind in ("check", "answer", "bound", "wait", "barrier", "guard"):
            self.assertGreater(len([l for l in lines if l.startswith(kind + " ")]), 10)
        self.assertEqual(lines[-1], "%d mutants" % (len(lines) - 1))

    def test_unchecked_call_refused(self):
        line = "    static const float one = 1.0f"
        forms = ("%s;", "(void)%s;", "if (one_s != 0)\n        ;\n    else %s;", "int a = %s;",
                 "int b;\n    b = %s;\n    (void)b;", "int c = 0, d = ((void)%s, 0);")
        calls = "\n    ".join(forms).replace("%s", "cudaMemsetAsync(0, 0, 0, 0)")
        said = self.changed("dense.c", line, "    %s\n%s" % (calls, line))
        self.assertEqual(len(set(re.findall(
            r"^mutants: dense.c:\d+: cudaMemsetAsync: the code ignores its result$", said, re.M))),
            len(forms), said)

    def test_broken_tree_ends_script(self):
        """The script names no mutant: the program exits."""
        mutants = load(SCRIPT)
        build = mutants.Build.__new__(mutants.Build)
        build.folder, build.sound, build.lock = "build", {}, threading.Lock()
        build.make = lambda m, folder: None
        m = dict(kind="barrier", file="add.cu", what="__syncthreads")
        args = argparse.Namespace(seeds=1, limit=1)
        mutants.run = lambda build, folder, *_: None if folder == "build/tests" else "it"
        self.assertEqual(mutants.attempt(build, m, args), "it")
        build.sound, mutants.run = {}, lambda *_: "it"
        with self.assertRaisesRegex(mutants.Broken, "it fails without a mutant"):
            mutants.attempt(build, m, args)
        for command, error in (("echo 'a.c:1: error: x'; exit 1", mutants.Refused),
                               ("echo 'cc: fatal error: Killed'; exit 1", mutants.Broken)):
            build.folder = self.dir()
            build.commands = {"weir_emulated": [
                command + "; : -o CMakeFiles/weir_emulated.dir/a.o -c " +
                os.path.join(FOLDER, "layers/add.cu")]}
            with self.assertRaises(error):
                build.compile("add.cu", "x", "weir_emulated", self.dir())

    def test_obsolete_name_refused(self):
        said = self.changed("edges.c", "enum status read_out(", "enum status get_out(")
        self.assertIn("mutants: KNOWN: 'wait edges.c:read_out:cudaStreamSynchronize' is not there",
                      said)

    def test_simulator_texts_present(self):
        done = harness.run([sys.executable, "-B", SIMULATED, "--check"])
        self.assertEqual(done.returncode, 0, done.stdout)
        mutants = load(SIMULATED)
        file, old, new = mutants.MUTANTS[0][2][0]
        mutants.MUTANTS = [("A", "a rule", [(file, old, new)]),
                           ("A", "a former rule", [(file, old, new), (file, "no such text", "")])]
        self.assertEqual(mutants.check(),
                         ["mutants: a former rule: %s does not contain its text" % file])


harness.main(__name__)
