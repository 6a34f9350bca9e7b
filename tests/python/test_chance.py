"""A program warns if a training ended no better than a guess, but not after a short healthy run."""
# label: cluster
import harness

FLAGS = ["--gpus=none", "--intra_op_threads=1", "--seed=3", "--batch_size=50"]


class Chance(harness.Test):
    def warned(self, *flags):
        text = self.run_worker(*FLAGS, *flags, model="mlp").output()
        self.assertIn("test accuracy", text)
        return [line for line in text.split("\n") if line.startswith("W ")]

    def test_diverged_training_warned(self):
        """The loss is far above that of a guess; the parameters are finite nevertheless."""
        (line,) = self.warned("--train_steps=40", "--optimizer=adam", "--learning_rate=30")
        self.assertRegex(line, r"the loss, \S+, is far above 2\.303, the loss of a guess among "
                               r"the 10 classes, .*training has diverged.*--learning_rate")

    def test_stuck_training_warned(self):
        """Training has learnt nothing after a pass: here, because the rate is almost 0."""
        (line,) = self.warned("--epochs=1", "--learning_rate=1e-12", "--hidden_units=8",
                              "--optimizer=sgd")
        self.assertRegex(line, r"at chance level: an accuracy of 0\.\d+ with 10 classes, where a "
                               r"guess has 0\.1000, and a loss of \S+, where a guess has 2\.303")

    def test_short_healthy_training_not_warned(self):
        for flags in (["--train_steps=3"], ["--train_steps=25", "--learning_rate=1e-12"],
                      ["--epochs=1"]):
            self.assertEqual(self.warned(*flags), [], flags)


harness.main(__name__)
