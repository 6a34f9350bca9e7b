#!/usr/bin/python3
"""The flags in --help, the manual pages, bash's completions, README.md and docs/ are the flags of
the programs."""
# label: unit address
import glob
import os
import re
import shutil
import sys
import unittest

import harness

PROGRAMS = {"ps": "weir-ps", "worker": "weir-worker", "weirctl": "weirctl"}
SHARE = os.path.join(os.path.dirname(harness.BIN), "share")
PAGES = {name: os.path.join(SHARE, name + ".1") for name in PROGRAMS.values()}
# Flags of other software. The text of our own scripts and bench/ is checked.
OTHERS = {"install", "prefix", "target", "test_dir", "output_on_failure", "list_presets",  # CMake
          "gres", "kill_on_bad_exit", "cpus_per_task", "gpus_per_task",  # Slurm
          "build_arg", "entrypoint", "rm", "read_only", "tmpfs", "cap_drop", "security_opt",
          "shm_size", "pids_limit", "init", "time", "user", "cpus",  # docker
          "unit", "now",  # systemd
          "stream", "ssl_certfile", "standalone", "display_name",  # Flower, torchrun, Jupyter
          "args", "no_netns",  # gdb, tests/chaos
          "cflags", "libs", "n_workers", "load_fast",  # pkg-config, libweir, TensorBoard
          *"""zone machine_type image_family image_project boot_disk_size metadata_from_file
          maintenance_policy provisioning_model instance_termination_action image_id instance_type
          key_name block_device_mappings user_data instance_market_options resource_group name
          image size os_disk_size_gb security_type enable_secure_boot custom_data
          generate_ssh_keys priority eviction_policy max_price""".split()}  # clouds


def said(program, *flags):
    return harness.check_output([harness.program(program), *flags], timeout=60 * harness.PATIENCE)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def named(text):
    """Returns the flags in a text, in the spelling of --help: --a-b is --a_b."""
    return {n.replace("-", "_") for n in re.findall(r"(?<![\w-])--([a-z][\w-]*)", text)}


def foreign(table):
    """Returns (name, our flag or NULL) of each name in base/flags_TABLE.c."""
    rows = re.findall(r'^    \{((?:"[\w ]+"\s*)+),\s+"?(\w+)"?,', read(os.path.join(
        harness.SOURCE, "base/flags_%s.c" % table)), re.MULTILINE)
    return [(name, ours) for names, ours in rows for name in re.findall(r"\w+", names)]


class Flags(unittest.TestCase):
    def setUp(self):
        self.own = {p: set(re.findall(r"^ +--(\w+)", said(p, "--help"), re.MULTILINE))
                    for p in PROGRAMS}
        self.assertTrue(all(len(flags) > 10 for flags in self.own.values()), self.own)

    def refused(self, program, *flags):
        """Returns the errors of a program that exits with 2 because of these flags."""
        done = harness.capture([harness.program(program), *flags])
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_reference_page_is_up_to_date(self):
        """docs/reference/flags.md equals the output of scripts/make_flags_page for these
        programs."""
        made = harness.check_output([sys.executable, harness.source("scripts/make_flags_page"),
                                     "--bin=" + harness.BIN], timeout=60 * harness.PATIENCE)
        page = read(harness.source("docs/reference/flags.md"))
        self.assertEqual(made.splitlines(), page.splitlines(),
                         "run scripts/make_flags_page --write")
        for program, flags in self.own.items():
            part = page.split("\n## %s\n" % program)[1].split("\n## ")[0]
            self.assertEqual(set(re.findall(r"^- `--(\w+)", part, re.MULTILINE)),
                             flags - {"help", "version"}, program)

    def test_completions_have_all_flags(self):
        for program, name in PROGRAMS.items():
            listed = re.search(r"names='([^']*)'", said(program, "--help=bash")).group(1)
            self.assertEqual(named(listed), self.own[program], name)

    @unittest.skipUnless(all(map(os.path.exists, PAGES.values())), "this build has no manual pages")
    def test_manual_pages_have_all_flags(self):
        for program, name in PROGRAMS.items():
            page = read(PAGES[name])
            listed = re.findall(r"^\.TP\n\\fB\\-\\-(\w+)\\fR", page, re.MULTILINE)
            self.assertEqual(set(listed), self.own[program] - {"help", "version"}, name)
            self.assertNotIn("@", re.sub(r"\\fI[^\\]*", "", page), name)

    @unittest.skipUnless(all(map(os.path.exists, PAGES.values())), "this build has no manual pages")
    @unittest.skipUnless(shutil.which("mandoc") and shutil.which("man"),
                         "needs mandoc and man (Debian: mandoc, man-db)")
    def test_manual_pages_have_no_warnings(self):
        for page in (*PAGES.values(), os.path.join(SHARE, "weir-task.1")):
            for command in (["mandoc", "-T", "lint", "-W", "warning", page],
                            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page]):
                done = harness.capture(command, env=dict(os.environ, LC_ALL="C.UTF-8",
                                                         MANPAGER="cat"))
                found = done.stdout if command[0] == "mandoc" else done.stderr
                self.assertEqual((done.returncode, found), (0, ""), command)

    def test_cloud_addresses_refused_by_each_path_flag(self):
        """Flags for files that are only read refuse such an address, too, instead of reporting that
        there is no folder "gs:"."""
        for program in PROGRAMS:
            paths = re.findall(r"^ +--(\w+)=(?:FILE\S*|DIR|PATH)", said(program, "--help"),
                               re.MULTILINE)
            self.assertGreater(len(paths), 3, program)
            errors = self.refused(program, *("--%s=gs://bucket/run" % f for f in paths))
            for flag in paths:
                self.assertIn("--%s=gs://bucket/run: only paths of this machine" % flag, errors)

    def test_ps_and_worker_accept_each_others_flags(self):
        """A program ignores the flags of the other one, but checks their values. It refuses flags
        with which the other program does something else than train."""
        alone = {"ps": {"list_devices", "self_test"}, "worker": {"leave"}}
        for program, other in (("ps", "worker"), ("worker", "ps")):
            given = self.own[other] - {"help", "version"}
            errors = self.refused(program, *("--%s=?" % flag for flag in given))
            self.assertEqual(named("\n".join(re.findall("unknown flag (--\\w+)", errors))),
                             alone[program])
            for flag in given - self.own[program] - alone[program]:
                row = re.search(r'^FOR_\w+\("%s", (\w+),' % flag,
                                read(harness.source("flags/table.inc")), re.MULTILINE)
                self.assertEqual(row.group(1) != "STRING", "--%s: '?' is " % flag in errors, flag)

    COMMANDS = ("status", "members", "servers", "who-is-late", "tables", "checkpoint",
                "remove-worker", "drain", "stop", "add")
    OF_EXPORT = {  # names that users may type for the flags of export
        "--output=FILE": "out out_file outfile output_file output_path o file to export_file "
                         "export_path",
        "--since=STEP": "from base since_step since_id since_checkpoint step patch",
        "without --since": "full",
        "all tables": "table table_name",
        "safetensors": "format",
        "replaces an older file": "force overwrite",
        "--checkpoint_dir=DIR": "checkpoints checkpoint_path ckpt ckpts dir folder model_dir "
                                "save_dir saved checkpoint",
        "--row_dtype=bf16": "dtype rows_dtype bf16"}

    def test_names_of_other_trainers_lead_to_flags(self):
        """Each row of the table names a flag of the worker, or explains that none is needed. No
        program guesses another flag with another meaning."""
        rows, of_export = foreign("neighbours"), " ".join(self.OF_EXPORT.values()).split()
        names = [name for name, _ in rows]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(set(), set(names) & set().union(self.own["worker"], self.own["ps"]))
        self.assertEqual(set("""lr bs gpu steps resume rank nproc_per_node dataset model_dir ps
            label out csv data save_model val_split checkpoint num_classes loss model_file optim wd
            momentum_factor workers num_workers train server n_workers""".split()) - set(names),
            set())
        for program in PROGRAMS:
            errors = self.refused(program, *("--%s=1" % name for name, _ in rows), "-h")
            self.assertIn("unknown flag -h; did you mean --help?", errors)
            for name, ours in rows:
                if program == "weirctl" and name in (*self.COMMANDS, *of_export):
                    continue
                line = re.search("unknown flag --%s[;:] (.*)" % name, errors).group(1)
                if ours != "NULL":
                    self.assertIn("--" + ours, line)
                    self.assertIn(ours, self.own["worker"] | self.own["ps"], name)
                for wrong in ("models_dir", "drain", "serve", "min_workers"):
                    self.assertNotIn("--%s?" % wrong, line)
                self.assertNotEqual(line, "--help lists all", name)

    def test_names_for_flags_of_export_lead_to_them(self):
        for ours, names in self.OF_EXPORT.items():
            for name in names.split():
                self.assertRegex(self.refused("weirctl", "--%s=x" % name, "export"),
                                 "unknown flag --%s: .*%s" % (name, ours))

    def test_commands_typed_as_flags_refused(self):
        for command in self.COMMANDS:
            self.assertRegex(self.refused("weirctl", "--" + command),
                             "unknown flag --%s: a command has no dashes; write "
                             "weirctl --ps_hosts=HOST:PORT,... %s" % (command, command))

    def test_documents_name_existing_flags(self):
        known = set().union(*self.own.values(), OTHERS)
        for folder in ("bench", "examples", "scripts", "tests/emulation", "tests/sim",
                       "tests/wan"):
            for path in glob.glob(harness.source(folder, "**"),
                                  recursive=True):
                if os.path.isfile(path) and not path.endswith((".md", ".pyc")):
                    known |= named(read(path))
        known |= named(read(harness.source("python/weir/onnx.py")))
        others = {name for table in ("tensorflow", "neighbours") for name, _ in foreign(table)}
        documents = glob.glob(harness.source("docs/**/*.md"), recursive=True)
        self.assertGreater(len(documents), 5)
        for path in ("README.md", "CONTRIBUTING.md", *documents):
            flags = named(read(harness.source(path)))
            unknown = flags - known - (
                others if path.endswith(("tensorflow.md", "own-model.md", "weir-h.md")) else set())
            self.assertEqual(unknown, set(), "%s names flags that no program has" % path)


harness.main(__name__)
