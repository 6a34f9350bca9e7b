"""--placement and related flags of the real worker, which assign layers to devices."""
# label: cluster address
import re
import shlex

import harness


class Placement(harness.Test):
    def worker(self, *flags):
        return self.start_alone("--train_steps=2", "--batch_size=4", *flags, model="mlp")

    def refused(self, status, *words, flags):
        process = self.worker(*flags)
        process.wait(30, status)
        errors = [l for l in process.lines if l.startswith("E ")]
        self.assertEqual(len(errors), 1, process.output())
        self.assert_has(errors[0], *words)

    def test_placement_logged(self):
        output = self.worker("--placement=hid=cpu:0", "--log_device_placement").wait_output(30)
        self.assertIn(" hid/weights: /device:CPU:0 (rule 'hid=cpu:0')", output)
        self.assertIn(" relu1: /device:CPU:0 (default: the device of 'hid')", output)
        self.assertIn(" sm/weights: /device:CPU:0 (default)", output)

    def test_placement_of_two_towers_logged(self):
        process = self.worker("--towers=2", "--log_device_placement")
        self.assert_has(process.wait_output(30), *(
            " tower_%d/hid/weights: /device:CPU:0 (default)" % tower for tower in range(2)))

    def test_placement_by_type_parameter_and_whole_name(self):
        process = self.worker("--placement=type:dense=/job:localhost/replica:0/task:0/cpu:0,"
                              "*/biases=/job:worker/task:0/device:CPU:0", "--log_device_placement")
        output = process.wait_output(30)
        self.assertIn(" hid: /device:CPU:0 (rule 'type:dense=/job:localhost/replica:0/task:0/cpu:0"
                      "')", output)
        self.assertIn(" sm/biases: /device:CPU:0 (rule '*/biases=/job:worker/task:0/", output)

    def test_placement_not_logged_by_default(self):
        self.assertNotIn("/device:", self.worker("--placement=hid=cpu:0").wait_output(30))

    def test_command_of_the_guide_works(self):
        """docs/guide/models.md's command literally, except for fewer steps and less data."""
        section = harness.read_source("docs/guide/models.md").split(
            "\n## Which device computes which layer\n")[1]
        command = re.search(r"^    (worker .*)$", section, re.MULTILINE).group(1)
        words = shlex.split(command.replace("--train_steps=20", "--train_steps=2"))
        self.assertIn("--train_steps=2", words)
        words[0] = harness.program(words[0])
        process = self.start("worker", [*words, "--batch_size=4", "--data_dir=" + self.data()])
        process.ends(0, "fc1/weights: /device:CPU:0 .rule 'fc")
        process.wait_line("conv1/weights: /device:CPU:0 .rule 'conv.*by --allow_soft_placement")

    def test_bad_placement_refused(self):
        self.refused(1, "layer 'hid'", "gpu:1", "there are /device:CPU:0;",
                     flags=["--placement=[hs]*[dm]=gpu:1"])
        self.refused(1, "'fc*=cpu' fits no layer", "flatten1, hid, relu1, sm",
                     flags=["--placement=fc*=cpu"])
        self.refused(1, "'type:lstm=cpu' fits no layer's type", flags=["--placement=type:lstm=cpu"])
        self.refused(1, "'hid/w=cpu' fits no parameter; use, for example, hid/weights",
                     flags=["--placement=hid/w=cpu"])
        self.refused(2, "'/job:ps/cpu:0'", "is not a device", "/job:localhost/replica:0/task:0/",
                     flags=["--placement=hid=/job:ps/cpu:0"])
        self.refused(2, "'gpu;1'", "not a device", flags=["--placement=[hs]*[dm]=gpu;1"])

    def test_soft_placement_falls_back_with_warning(self):
        process = self.worker("--placement=[hs]*[dm]=gpu:1", "--allow_soft_placement", "--towers=2")
        process.wait(30)
        warnings = [l for l in process.lines if l.startswith("W ")]
        self.assertEqual(len(warnings), 2, process.output())
        self.assertIn("layer 'hid' cannot be placed on gpu:1", warnings[0])
        self.assertIn("layer 'sm' cannot be placed on gpu:1", warnings[1])


harness.main(__name__)
