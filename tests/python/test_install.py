#!/usr/bin/python3
"""Tests the files that cmake --install writes for this build. All programs run, and find their
parts wherever the whole folder is moved. A program that was moved alone prints where it searched.
After an uninstallation no file is left. The Debian package that cpack makes is complete."""
# label: cluster
import glob
import os
import re
import shlex
import shutil
import subprocess
import unittest

import harness

BUILD = os.path.dirname(harness.BIN)
PERMANENT = 1
# Prints the completions that bash offers after these words; bash splits words at '='.
COMPLETE = r"""
. "$1"; shift
read -r _ _ function name < <(complete -p "$1")
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); "$function"; echo "${COMPREPLY[@]}"
"""
FIND_PACKAGE = """
cmake_minimum_required(VERSION 3.25)
project(user NONE)
find_package(Weir 0.1 REQUIRED)
foreach(program ps worker weirctl)
  get_target_property(path Weir::${program} IMPORTED_LOCATION)
  message(STATUS "is ${path}")
endforeach()
get_target_property(path Weir::weir IMPORTED_LOCATION)
message(STATUS "is ${path}")
message(STATUS "models ${Weir_MODELS_DIR}")
"""


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "cmake_install.cmake")),
                     "%s is no build folder of CMake" % BUILD)
class Install(harness.Test):
    def setUp(self):
        super().setUp()
        self.keep_notes(BUILD)

    def cmake(self, *words, status=0, **env):
        done = harness.run(["cmake", *words], env=dict(os.environ, **env),
                           timeout=120 * harness.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def install(self):
        """Installs everything and moves it; returns its folder."""
        first, moved = (self.path(d) for d in ("first", "moved"))
        self.cmake("--install", BUILD, "--prefix", first)
        os.rename(first, moved)
        return moved

    def run_program(self, path, *flags, status=0):
        process = self.start(os.path.basename(path), [path, *flags])
        process.wait(60, status)
        return process

    def train(self, worker, *flags, status=0):
        return self.run_program(worker, "--train_steps=2", "--data_dir=" + self.data(), *flags,
                                status=status)

    def test_installation_is_complete(self):
        where = self.install()
        models = os.listdir(harness.MODELS)
        self.assertEqual(sorted(os.listdir(os.path.join(where, "share/weir/models"))),
                         sorted(m for m in models if m.endswith(".json")))
        for file in ("share/weir/scripts/get_mnist", "share/weir/scripts/get_cifar10",
                     "share/weir/weir.proto", "share/weir/evaluation.proto",
                     "share/weir/table_status.proto",
                     "include/weir.h", "include/weir_tables.h",
                     "share/weir/examples/own_trainer.c",
                     "share/weir/examples/char_gpt_weir.py",
                     "share/weir/examples/clicks.py", "share/weir/examples/clicks_weir.py",
                     "share/weir/examples/clicks_serve.py",
                     "share/weir/python/weir/torch/__init__.py",
                     "share/weir/examples/own_loop.ipynb",
                     "share/weir/examples/shared_gpu.ipynb",
                     "share/weir/python/pyproject.toml", "share/weir/r/weir/configure",
                     "share/weir/examples/softmax.R",
                     "share/weir/scripts/make_data", "share/weir/scripts/ipsec/generate",
                     "share/doc/weir/README.md", "share/doc/weir/docs/guide/failures.md"):
            self.assertTrue(os.path.exists(os.path.join(where, file)), file)
        for backend in os.listdir(os.path.join(BUILD, "lib")):
            if backend == "separate" or backend.startswith("libweir.so"):
                # Debugging symbols stay in the build's folder; libweir.so is for other programs.
                continue
            self.assertEqual(len(glob.glob(os.path.join(where, "lib*/**/weir", backend),
                                           recursive=True)), 1, backend)
        ports = harness.free_ports(2)
        hosts = ["--ps_hosts=%s:%d" % (harness.LOOPBACK, ports[0]),
                 "--worker_hosts=%s:%d" % (harness.LOOPBACK, ports[1])]
        ps = self.start("weir-ps", [os.path.join(where, "bin/weir-task"), "--job_name=ps", *hosts])
        self.train(os.path.join(where, "bin/weir-worker"), "--model=softmax", *hosts)
        ps.wait(60)
        for program in ("weirctl", "weir-task"):
            self.run_program(os.path.join(where, "bin", program), "--version")
        config = ('{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, '
                  '"task": {"type": "ps", "index": 0}}')
        worker = self.start("weir-worker", [os.path.join(where, "bin/weir-worker")],
                            env={**os.environ, "TF_CONFIG": config})
        worker.ends(2, "but this program is weir-worker: start weir-ps, or weir-task")

    def complete(self, where, *words):
        file = os.path.join(where, "share/bash-completion/completions", words[0])
        return harness.check_output(["bash", "-c", COMPLETE, "bash", file, *words],
                                    cwd=where).split()

    def test_completions_manual_and_cmake_work(self):
        where = self.install()
        for words, offered in ((["weir-worker", "--sync-m"], ["--sync_mode="]),
                               (["weir-worker", "--sync_mode", "=", "a"], ["async"]),
                               (["weir-worker", "--join", "--sync-mode", "s"], ["sync", "ssp"]),
                               (["weir-worker", "--models_dir", "=", "sha"], ["share"]),
                               (["weir-ps", "--log_level", "=", "="], []),
                               (["weir-ps", "--log_level", "="], "debug info warn error".split()),
                               (["weirctl", "--wait", "ch"], ["checkpoint"]),
                               (["weirctl", "add", ""], ["worker", "ps"]),
                               (["weir-worker", "--model", "=", "sh"], ["share"]),
                               (["weir-task", "--sav"], ["--save_secs=", "--save_steps="]),
                               (["weir-task", "--model", "=", "lene"], ["lenet5"])):
            self.assertEqual(self.complete(where, *words), offered, words)
        models = {m[:-5] for m in os.listdir(os.path.join(where, "share/weir/models"))}
        self.assertLessEqual(models, set(self.complete(where, "weir-worker", "--model", "=", "")))
        for name in ("weir-ps", "weir-worker", "weir-task", "weirctl"):
            with open(os.path.join(where, "share/man/man1", name + ".1"), encoding="utf-8") as f:
                self.assertIn(".SH OPTIONS\n", f.read())
        self.links(os.path.join(where, "share/doc/weir"))
        user = self.new_folder("user")
        harness.write_file(os.path.join(user, "CMakeLists.txt"), FIND_PACKAGE)
        said = self.cmake("-S", user, "-B", os.path.join(user, "build"),
                          "-DCMAKE_PREFIX_PATH=" + where)
        for found in ("is %s/bin/weir-ps", "is %s/bin/weir-worker", "is %s/bin/weirctl",
                      "is %s/lib/libweir.so", "models %s/share/weir/models"):
            self.assertIn("-- " + found % where + "\n", said)

    def links(self, folder):
        """Checks that links of the pages lead to files."""
        for page in glob.glob(folder + "/**/*.md", recursive=True):
            found = re.findall(r"\]\(([^)#\s]+)", harness.read_text(page))
            for link in found:
                path = os.path.join(os.path.dirname(page), link)
                self.assertTrue("://" in link or os.path.exists(path), (page, link))

    def test_uninstall_removes_only_installed_files(self):
        """The installation is below a DESTDIR, in which a user has folders and files."""
        staged = self.path("staged")
        prefix = "/opt/wéir-[1]"
        root = staged + prefix
        before = [root + "/share/man", root + "/share/weir"]
        for folder in before:
            os.makedirs(folder)
        script = harness.source("packaging/uninstall.cmake")
        for _ in range(2):  # when the second installation begins, all folders exist
            self.cmake("--install", BUILD, "--prefix", prefix, DESTDIR=staged)
        self.train(root + "/bin/weir-worker", "--model=softmax")
        others = root + "/lib/others"
        with open(others, "w", encoding="utf-8"):
            pass
        self.assertIn("set DESTDIR as at the installation",
                      self.cmake("-P", script, BUILD, status=PERMANENT).replace("\n ", ""))
        self.cmake("-P", script, BUILD, DESTDIR=staged)
        left = [os.path.join(d, n) for d, ds, ns in os.walk(staged) for n in ns + ds]
        self.assertEqual(sorted(left), sorted([staged + "/opt", root, root + "/lib", others,
                                               root + "/share", *before]))
        self.assertIn("nothing to remove", self.cmake("-P", script, BUILD, status=PERMANENT))

    @unittest.skipUnless(shutil.which("dpkg-shlibdeps") and shutil.which("file"),
                         "needs dpkg-shlibdeps and file (Debian: dpkg-dev, file)")
    @unittest.skipIf(harness.SANITIZE, "packages never contain sanitized programs")
    def test_debian_package_is_complete(self):
        """Unpacks the package weir. scripts/try packages tests all packages in a bookworm of its
        own."""
        made, root = (self.path(d) for d in ("made", "root"))
        subprocess.run(["cpack", "-B", made, "-D", "CPACK_COMPONENTS_ALL=weir"], check=True,
                       cwd=BUILD, stdout=subprocess.DEVNULL, timeout=120 * harness.PATIENCE)
        package, = glob.glob(made + "/*.deb")
        self.assertRegex(os.path.basename(package), r"^weir_[0-9.]+-1_\w+\.deb$")
        depends = harness.check_output(["dpkg-deb", "-f", package, "Depends"])
        for library in ("libc6", "libgrpc", "libjansson", "libssl"):
            self.assertRegex(depends, r"\b%s\w* \(>= " % library)
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
        doc = os.path.join(root, "usr/share/doc/weir")
        self.assertEqual(sorted(os.listdir(doc)),
                         ["README.md", "bench", "changelog.Debian.gz", "copyright", "docs",
                          "examples", "net"])
        for name in ("weirctl", "weir-task"):
            self.assertTrue(os.path.exists(root + "/usr/share/man/man1/%s.1.gz" % name))
        self.assertTrue(os.path.exists(root + "/usr/include/weir.h"))
        for said, file in (("libweir 0 weir", "shlibs"), ("ldconfig", "triggers")):
            self.assertIn(said, harness.check_output(["dpkg-deb", "-I", package, file]))
        self.train(root + "/usr/bin/weir-worker", "--model=softmax")

    def test_worker_joins_by_printed_line(self):
        """The printed line has the installed names, because another `ps` may be first in PATH."""
        where = self.install()
        ports = harness.free_ports(2)
        hosts = ["--ps_hosts=%s:%d" % (harness.LOOPBACK, ports[0]),
                 "--worker_hosts=%s:%d" % (harness.LOOPBACK, ports[1])]
        programs = [self.start("weir-ps", [os.path.join(where, "bin/weir-ps"), *hosts]),
                    self.start("weir-worker", [
                        os.path.join(where, "bin/weir-worker"), "--model=softmax",
                        "--train_steps=100000000", "--data_dir=" + self.data(), *hosts])]
        programs[1].wait_line("training step")
        ctl = [os.path.join(where, "bin/weirctl"), hosts[0], "add"]
        line, ps = (harness.check_output(ctl + words, timeout=60 * harness.PATIENCE)
                    for words in (["worker"], ["ps", "localhost:9"]))
        self.assertTrue(ps.startswith(os.path.join(where, "bin/weir-ps --join ")), ps)
        programs.append(self.start("joiner", shlex.split(line)))
        programs[2].wait_line("joined as worker 1")
        self.kill(*programs)

    def test_missing_data_names_installed_script(self):
        """The named script exists."""
        where = self.install()
        worker = self.run_program(os.path.join(where, "bin/weir-worker"), "--data_dir=" + where,
                                  status=PERMANENT)
        worker.wait_line(r"or fetch MNIST \(%s/share/weir/scripts/get_mnist\)" % where)

    def test_moved_program_names_searched_folders(self):
        alone = self.new_folder("alone")
        worker = os.path.join(alone, "worker")
        shutil.copy(harness.program("worker"), worker)
        said = self.train(worker, "--models_dir=" + harness.MODELS, "--model=softmax",
                          status=PERMANENT)
        said.wait_line("E .* libweir_cpu.so is not in ../lib.*/weir, in %s or in ../lib of that "
                       "folder. .*--backend_dir" % alone)
        shutil.copy(os.path.join(BUILD, "lib/libweir_cpu.so"), alone)
        self.train(worker, "--models_dir=" + harness.MODELS, "--model=softmax")


harness.main(__name__)
