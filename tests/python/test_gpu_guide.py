"""The guides for users who share a machine with GPUs, docs/start/shared-machine.md and
docs/guide/gpus.md. Each `worker` command in them runs on a machine with four fake cards and an
emulated CUDA, literally except for changes that save time: a smaller model, two steps instead of
passes, and little data."""
# label: cluster computes
import re
import shlex
import unittest

import fake_gpus
import harness


def guide(file, begin, end):
    text = harness.read_source(file)
    return text[text.index(begin):text.index(end) if end else None]


def commands(text):
    """Returns whole lines of code, and code within lines; a bare name, `worker`, is no command."""
    found = re.findall(r"^    (worker --.*)$", text, re.MULTILINE)
    found += re.findall(r"`(worker --[^`]*)`", text)
    return list(dict.fromkeys(c.split("   #")[0].strip() for c in found))


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class Guide(fake_gpus.Machine):
    CUDA = fake_gpus.EMULATED

    def setUp(self):
        super().setUp()
        uuids = ["GPU-8932f937-0000-4000-8000-000000000000", *map(fake_gpus.uuid, (1, 2, 3))]
        self.machine(*("gpu uuid=%s pci=0000:%02x:00.0 name=NVIDIA_H200 cc=9.0 total=400 used=10 "
                       "busy=0\n" % (u, 0x3a + i) for i, u in enumerate(uuids)))
        self.little = self.new_folder("little")
        harness.make_data(self.little, n_train=300, n_test=20)

    def run_command(self, command):
        little = command.replace("--epochs=2", "--train_steps=2")
        if "--placement" in command:  # depends on the layers' names
            little += " --batch_size=4"
        else:
            little = little.replace("--model=lenet5", "--model=mlp")
        words = shlex.split(little)
        argv = [harness.program(words[0]), *words[1:], "--backend_dir=" + self.backends(self.CUDA),
                "--gpu_lock_dir=" + self.locks(), "--models_dir=" + harness.MODELS,
                "--data_dir=" + self.little]
        process = self.start("worker", argv, env=self.env(), cwd=self.dir())
        process.wait(60)
        return process

    def check(self, text, least):
        found = commands(text)
        self.assertGreaterEqual(len(found), least, found)
        for command in found:
            with self.subTest(command=command):
                output = self.run_command(command).output()
                trains = "--model=" in command
                self.assertEqual("test accuracy" in output, trains, output)
                if trains:
                    self.assertEqual("tower 0: CPU" in output, "--gpus=none" in command, output)
                if "--self_test" in command:
                    self.assertEqual(output.count("GPU is running!"), 4)

    def test_start_page_commands_run(self):
        self.check(guide("docs/start/shared-machine.md", "# A machine", "\n## Choosing"), 5)

    def test_choosing_section_commands_run(self):
        self.check(guide("docs/start/shared-machine.md", "## Choosing a card\n", None), 12)

    def test_gpus_page_commands_run(self):
        self.check(guide("docs/guide/gpus.md", "# GPUs", None), 12)

    def test_start_page_commands_run_without_card(self):
        """The same script runs on a machine without a card."""
        self.machine("cuda init=100\n")
        output = self.run_command("worker --model=lenet5 --epochs=2").output()
        self.assertIn("training on the CPU: CUDA shows no GPU (cuInit: 100, ", output)
        self.assertIn("test accuracy", output)


harness.main(__name__)
