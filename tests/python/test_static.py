"""The static checks without git. They check a tree from a tarball like a clone, and find faults in
it. A check that has read no file fails."""
# label: cluster
import ast
import os
import re
import shutil
import tempfile
import unittest
import unittest.mock

import harness

# Checks of C files.
CHECKS = ("check_format", "check_headers", "check_layering", "check_names", "check_sentences",
          "check_sizes")
# The fault that each check must find: a file and its text.
FAULTS = {
    "check_format": ("base/fault.c", "int  x;\n"),
    "check_headers": ("base/fault.h", "#pragma once\nint fault(size_t n);\n"),
    "check_layering": ("base/fault.c", '#include "net/wire/frame.h"\n'),
    "check_python": ("base/fault.py", "print(fault)\n"),
    "check_shell": ("base/fault.sh", "#!/bin/sh\nrm $1\n"),
    "check_sizes": ("base/fault.c", "int x;\n" * 801),
}


class Static(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-test-")
        self.addCleanup(folder.cleanup)
        self.tree = os.path.join(folder.name, "tree")
        # No check may call git.
        self.path = os.path.join(folder.name, "bin")
        self.write("#!/bin/sh\necho 'git: not here' >&2\nexit 127\n", "../bin/git")
        os.chmod(os.path.join(self.path, "git"), 0o755)

    def write(self, text, *parts):
        path = os.path.join(self.tree, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        harness.write_file(path, text)

    def copy(self, *folders):
        """Copies the tree as in a tarball, or only these folders of it."""
        listed = self.listed(harness.SOURCE)
        for name in listed:
            if not folders or name.startswith(folders):
                os.makedirs(os.path.dirname(os.path.join(self.tree, name)), exist_ok=True)
                shutil.copy2(harness.source(name), os.path.join(self.tree, name))
        return listed

    def run_script(self, name, tree):
        return harness.run([os.path.join(tree, "scripts", name)], cwd="/",
                           env=dict(os.environ, PATH=self.path + ":" + os.environ["PATH"]))

    def listed(self, tree):
        done = self.run_script("list_files", tree)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.split("\0")[:-1]

    def test_tree_without_git_passes(self):
        """check_format and check_headers read the files of list_files. They are so slow that the
        test runs them below base/ only."""
        listed = self.copy()
        self.assertEqual(self.listed(self.tree), listed)
        self.assertGreater(len(listed), 300)
        for check in ("check_layering", "check_names", "check_sentences", "check_sizes"):
            done = self.run_script(check, self.tree)
            self.assertEqual(done.returncode, 0, check + ": " + done.stdout)

    def test_faults_found(self):
        self.copy("base/", "net/wire/weir.proto", "net/wire/evaluation.proto",
                  "net/wire/table_status.proto", "scripts/",
                  ".clang-format", ".shellcheckrc", "ruff.toml")
        os.symlink(harness.source("build-ruff"), os.path.join(self.tree, "build-ruff"))
        for check, (path, text) in FAULTS.items():
            with self.subTest(check):
                done = self.run_script(check, self.tree)
                if check == "check_python" and done.returncode == 77:
                    self.skipTest(done.stdout.strip())
                self.assertEqual(done.returncode, 0, done.stdout)
                self.write(text, path)
                done = self.run_script(check, self.tree)
                self.assertNotEqual(done.returncode, 0, done.stdout)
                self.assertIn(path, done.stdout)
                self.assertNotIn("Traceback", done.stdout)
                os.unlink(os.path.join(self.tree, path))

    def test_symbols_of_room_above_found(self):
        """If a header declares a function that a room above it defines, no #include shows the
        dependency. check_layering finds it by the symbols."""
        self.copy("scripts/")
        self.write("int fault_sum(int a);\nextern const int fault_most;\n", "base/fault.h")
        self.write('#include "base/fault.h"\n\nint fault_twice(int a)\n{\n'
                   "    return fault_sum(a) + s.fault_sum + fault_most; /* fault_sum */\n}\n",
                   "base/fault.c")
        for room, complains in (("net/wire", True), ("base", False), ("tests", False)):
            with self.subTest(room):
                self.write('#include "base/fault.h"\n\nconst int fault_most = 2;\n\n'
                           "int fault_sum(int a)\n{\n    return a + a;\n}\n", room, "sum.c")
                done = self.run_script("check_layering", self.tree)
                os.unlink(os.path.join(self.tree, room, "sum.c"))
                self.assertEqual(done.returncode, complains, done.stdout)
                want = ["base/fault.%s: base/ must not use %s, which net/wire/sum.c defines" % use
                        for use in (("c:5", "fault_sum"), ("c:5", "fault_most"),
                                    ("h:1", "fault_sum"), ("h:2", "fault_most")) if complains]
                self.assertEqual(done.stdout.splitlines(), want or ["layering: clean"])

    def test_functions_in_files_of_other_names_found(self):
        """Functions without the name of their file may be 5 %. One of 21 is below this limit, two
        of 22 are above it."""
        self.copy("scripts/")
        names = ["fault_%d" % i for i in range(20)]
        for strays, fails in ((["stray"], False), (["stray", "other"], True)):
            with self.subTest(strays):
                self.write("".join("int %s(int a);\n" % n for n in names + strays),
                           "base/fault.h")
                self.write("".join("int %s(int a)\n{\n    return a;\n}\n" % n
                                   for n in names + strays), "base/fault.c")
                done = self.run_script("check_names", self.tree)
                self.assertEqual(done.returncode, fails, done.stdout)
                self.assertIn("names: %d of %d functions" % (len(strays), 20 + len(strays)),
                              done.stdout)

    def test_rules_of_sentences_find_their_faults(self):
        """Each rule finds its fault in a clean room, and passes the corrected sentence."""
        self.copy("scripts/")
        for room in self.clean_rooms():
            self.write("/* Is clean. */\n", room, "clean.c")
        for rule, name, fault, good in (
                ("opening", "h", "/* A lock.\n * What it guards is below. */",
                 "/* A lock.\n * It guards the fields below. */"),
                ("word", "c", 'LOG_E("give another file");', 'LOG_E("write take_over to DONE");'),
                ("verb", "h", "/* The step. */\nint fault(void);",
                 "/* Returns the step. */\nint fault(void);"),
                ("cut", "c", 'LOG_E("%s: cannot "\n"read", path);',
                 'printf("a line\\n"\n"another\\n");'),
                ("bool", "h", "int has_step; /* 1: at a step */", "int n; /* 0: no limit */"),
                ("opening", "py", '"""What it holds."""', '"""Holds files."""'),
                ("word", "py", 'raise OSError("nobody")', "x = 'nobody'"),
                ("opening", "md", "Weir\n\n# Who reads it", "# Readers"),
                ("word", "R", "x <- 1 # come", "come <- 1"),
                ("test", "c", "static void the_queue(void **state)\n",
                 "static void queue_full_is_refused(void **state)\n")):
            with self.subTest(rule=rule, fault=fault):
                for text, fails in ((fault, True), (good, False)):
                    self.write(text + "\n", "http/fault." + name)
                    done = self.run_script("check_sentences", self.tree)
                    self.assertEqual(done.returncode, fails, done.stdout)
                    self.assertEqual(("http/fault.%s:" % name) in done.stdout, fails)
                    self.assertEqual((": %s: " % rule) in done.stdout, fails, done.stdout)
                os.unlink(os.path.join(self.tree, "http/fault." + name))

    def clean_rooms(self):
        with open(os.path.join(self.tree, "scripts/check_sentences"), encoding="utf-8") as f:
            found = re.search(r"^CLEAN = (\(.*?\))$", f.read(), re.M | re.S)
        return ast.literal_eval(found.group(1))

    def test_headers_of_cuda_skipped_without_cuda(self):
        """A header that needs CUDA's is skipped by name; a header that lacks another one is not."""
        self.copy("net/wire/weir.proto", "net/wire/evaluation.proto",
                  "net/wire/table_status.proto", "scripts/")
        include = harness.check_output(["gcc", "-print-file-name=include"]).strip()
        folders = (include, "/usr/include/%s-linux-gnu" % os.uname().machine, "/usr/include")
        self.write("#!/bin/sh\nexec /usr/bin/gcc -nostdinc %s \"$@\"\n" %
                   " ".join("-isystem " + f for f in folders), "../bin/gcc")
        os.chmod(os.path.join(self.path, "gcc"), 0o755)
        no_toolkit = unittest.mock.patch.dict(os.environ, CUDA_HOME=self.tree)
        no_toolkit.start()
        self.addCleanup(no_toolkit.stop)
        self.write("#pragma once\n#include <cublas_v2.h>\nvoid f(cublasHandle_t h);\n",
                   "kernels/cuda/plan/plan.h")
        self.write('#pragma once\n#include "kernels/cuda/plan/plan.h"\n',
                   "kernels/cuda/layers/dense.h")
        done = self.run_script("check_headers", self.tree)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("not compiled, as CUDA is not installed (cublas_v2.h): "
                      "kernels/cuda/layers/dense.h kernels/cuda/plan/plan.h\n", done.stdout)
        self.write("#pragma once\n#include <no_such.h>\n", "kernels/cuda/layers/dense.h")
        done = self.run_script("check_headers", self.tree)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("kernels/cuda/layers/dense.h: does not compile", done.stdout)
        self.write("#pragma once\n#include <cublas_v2.h>\n", "base/fault.h")
        done = self.run_script("check_headers", self.tree)
        self.assertIn("base/fault.h: does not compile", done.stdout)

    def test_check_without_files_fails(self):
        self.copy("scripts/list_files", *("scripts/" + check for check in CHECKS))
        for check in CHECKS:
            with self.subTest(check):
                done = self.run_script(check, self.tree)
                self.assertNotEqual(done.returncode, 0, done.stdout)
                self.assertIn("nothing", done.stdout)
                self.assertNotIn("Traceback", done.stdout)

    def test_built_files_not_listed(self):
        self.copy("scripts/list_files")
        for path in (".ci/run", "a b.c", "net/build/of.c", ".clang-format"):
            self.write("x", path)
        for path in ("build/x.c", "build-asan/y.c", ".venv/z.c", "net/.cache/w.c", ".git/config",
                     "tests/__pycache__/v.py", "tests/u.pyc"):
            self.write("x", path)
        self.assertEqual(self.listed(self.tree),
                         [".ci/run", ".clang-format", "a b.c", "net/build/of.c",
                          "scripts/list_files"])


harness.main(__name__)
