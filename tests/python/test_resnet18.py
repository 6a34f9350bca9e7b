"""examples/models/resnet18.json is torchvision's resnet18: --init reads the state dict unchanged,
value by value, and the predictions match torchvision's. Names, shapes and probabilities lie in
tests/golden/torchvision, made by make_resnet18.py. If torchvision is installed, the test also
compares a second network, which torchvision itself initializes.

A probability may differ by TOLERANCE: Weir computes in float32, torchvision computed in float64."""
# label: cluster computes
import random

import golden
import harness
import weights

TOLERANCE = 1e-5
SAMPLE, CLASSES, N = (3, 48, 40), 6, 6
ALONE = ["--intra_op_threads=2", "--seed=5", "--batch_size=%d" % N]
# A training step that changes nothing.
STILL = ["--optimizer=sgd", "--learning_rate=1e-30", "--train_steps=1", "--freeze=*/moving_*"]
SUFFIX = {"weights": "weight", "biases": "bias", "gamma": "weight", "beta": "bias",
          "moving_mean": "running_mean", "moving_variance": "running_var"}


def samples():
    """Returns bytes of N samples, each of its own brightness, and labels of all classes."""
    rng = random.Random(3)
    size = SAMPLE[0] * SAMPLE[1] * SAMPLE[2]
    return b"".join(bytes(rng.randint(0, 50 * (k + 1) - 45) for _ in range(size))
                    for k in range(N)), bytes(k % CLASSES for k in range(N))


class Resnet18(harness.Test):
    def setUp(self):
        super().setUp()
        self.data = self.new_folder("data")
        for part in ("train", "t10k"):
            golden.write_samples(self.data, part, SAMPLE, *samples())
        self.state = self.path("resnet18.safetensors")

    def predict(self, path):
        out = self.path("out.csv")
        said = self.run_worker(*ALONE, "--predict=" + path, "--output=" + out, data=self.data,
                               model="resnet18").output()
        self.assertNotIn("unexpected", said)
        return weights.predicted(out)

    def exported(self):
        """Returns the parameters after --init and a step that changes nothing, by torchvision's
        names."""
        path = self.path("export")
        self.run_worker(*ALONE, *STILL, "--init=" + self.state, "--export=" + path,
                        data=self.data, model="resnet18")
        return path, {name[:name.rindex("/")] + "." + SUFFIX[name[name.rindex("/") + 1:]]: values
                      for name, (_, values) in harness.read_safetensors(path).items()}

    def test_state_dict_of_torchvision_predicts_the_same(self):
        want = harness.read_json(golden.RESNET18)
        state = golden.torch_state(want["tensors"])
        weights.write(self.state, state)
        path, got = self.exported()
        self.assertEqual(got.keys(), {name for name, t in state.items() if t[0] == "F32"})
        for name, values in got.items():
            self.assertTrue(list(values) == state[name][2], name)
        for source in (self.state, path):
            far = weights.furthest(self.predict(source), want["probabilities"])
            print("furthest from torchvision %s: %.2g" % (want["torchvision"], far))
            self.assertLess(far, TOLERANCE)

    def test_random_network_of_torchvision_predicts_the_same(self):
        torch = weights.torch2(self)
        try:
            import torchvision
        except ImportError as missing:
            self.skipTest("torchvision is not installed: %s" % missing)
        torch.manual_seed(4)
        net = torchvision.models.resnet18(weights=None, num_classes=CLASSES)
        batch = torch.tensor(list(samples()[0])).reshape(N, *SAMPLE) / 255
        for _ in range(3):
            net(batch)  # computes the running statistics from samples
        weights.write(self.state, weights.torch_state(net.eval()))
        with torch.no_grad():
            want = net.double()(batch.double()).softmax(1).tolist()
        far = weights.furthest(self.predict(self.state), want)
        print("furthest from torchvision %s: %.2g" % (torchvision.__version__, far))
        self.assertLess(far, TOLERANCE)


harness.main(__name__)
