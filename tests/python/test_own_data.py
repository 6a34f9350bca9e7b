"""Own data at a small size: colour pictures of CIFAR's shape, and Fashion-MNIST in other formats.
The same samples in any format lead to the same bits, in training, evaluation and prediction.
Training continues from an export and from a PyTorch state dict."""
# label: cluster computes
import csv
import json
import os
import struct

import harness
import weights

FASHION = "/usr/share/datasets/fashion-mnist"
FORMATS = ("idx", "npy", "npz", "npz_deflated", "safetensors", "png")
N_TEST = 40
ALONE = ["--intra_op_threads=1", "--seed=3"]
TRAIN = [*ALONE, "--batch_size=20", "--train_steps=25", "--learning_rate=0.003"]
FINE = [*ALONE, "--batch_size=20", "--train_steps=6", "--learning_rate=0.001"]
# A training step that changes nothing: the figures after it are those of the first values.
STILL = [*ALONE, "--optimizer=sgd", "--learning_rate=1e-30", "--train_steps=1", "--batch_size=10"]
# LeNet-5's layers under other names.
NAMES = {"c1": "features.0", "c3": "features.3", "c5": "classifier.1", "f6": "classifier.3",
         "output": "classifier.5"}


def npy(path):
    """Returns (dims, bytes) of an npy of bytes."""
    data = harness.read_bytes(path)
    begin = 10 + int.from_bytes(data[8:10], "little")
    text = data[10:begin].decode("ascii")
    dims = text[text.index("(") + 1:text.index(")")]
    return [int(d) for d in dims.split(",") if d.strip()], data[begin:]


class OwnData(harness.Test):
    def make(self, form, *flags):
        """Makes samples in the order of their labels, as folders of pictures have them."""
        return self.make_samples(form, form, "--by_class", "--train=240", "--test=%d" % N_TEST,
                                 *flags)

    def train(self, form, flags, *more):
        return self.train_alone(*flags, *more, data=self.path(form), model="lenet5")[1]

    def check_one_result(self, results, what):
        self.assertEqual(len(set(results.values())), 1, (what, results))

    def check_training(self, forms, *more):
        """Checks that each format has the same parameters and test loss; returns the exports of
        all."""
        sums = {}
        for form in forms:
            s = self.train(form, TRAIN, "--export=" + self.path(form + ".export"), *more)
            sums[form] = s["parameters_sha256"], s["test_loss"], s["test_accuracy"]
        self.check_one_result(sums, "trained")
        return s

    @staticmethod
    def numbers(rows):
        """Returns the part of the predictions that all formats have, without the names of files and
        classes."""
        head = next(rows)
        kept = [k for k, name in enumerate(head) if name not in ("file", "class_name")]
        return tuple(tuple(row[k] for k in kept) for row in (head, *rows))

    def check_inference(self, forms, trained, *more):
        losses, outputs = {}, {}
        for form in forms:
            export = self.path(form + ".export")
            self.run_worker(*ALONE, *more, "--evaluate=" + export,
                            "--summary_json=" + self.path("summary.json"), data=self.path(form),
                            model="lenet5")
            losses[form] = self.figures()["test_loss"]
            self.run_worker(*ALONE, *more, "--predict=" + export,
                            "--output=" + self.path("out.csv"), data=self.path(form),
                            model="lenet5")
            with open(self.path("out.csv"), encoding="ascii", newline="") as f:
                outputs[form] = self.numbers(csv.reader(f))
        self.assertEqual(losses[forms[0]], trained["test_loss"])
        self.assertEqual(len(outputs[forms[0]]), 1 + N_TEST)
        self.check_one_result(losses, "evaluated")
        self.check_one_result(outputs, "predicted")

    def state_dict(self, export):
        """Returns the tensors of an export as a PyTorch state dict under other names."""
        state = {}
        for name, (shape, values) in harness.read_safetensors(export).items():
            layer, kind = name.split("/")
            kind = {"weights": "weight", "biases": "bias"}[kind]
            state["%s.%s" % (NAMES[layer], kind)] = "F32", shape, list(values)
        return state

    def first_values(self, state):
        """Returns the flags that start from a state dict."""
        weights.write(self.path("state.safetensors"), state)
        harness.write_file(self.path("map"), "".join("%s = %s\n" % pair for pair in NAMES.items()))
        return ["--init=" + self.path("state.safetensors"), "--init_map=" + self.path("map")]

    def check_fine_tuning(self, forms, trained):
        """Trains on from an export and from a state dict of the same numbers, in every format."""
        sums = {}
        export = self.path(forms[0] + ".export")
        other = self.first_values(self.state_dict(export))
        for form in forms:
            for kind, flags in (("export", ["--init=" + export]), ("state dict", other)):
                s = self.train(form, FINE, *flags)
                sums[form, kind] = s["parameters_sha256"], s["test_loss"]
        self.check_one_result(sums, "fine-tuned")
        self.assertNotEqual(s["parameters_sha256"], trained["parameters_sha256"])
        self.assertLess(s["test_loss"], 2 * trained["test_loss"])  # training continued from there

    def check_all(self, *flags):
        for form in FORMATS:
            self.make(form, *flags)
        trained = self.check_training(FORMATS)
        self.check_inference(("idx", "npy", "safetensors", "png"), trained)
        self.check_fine_tuning(("idx", "npy", "npz", "safetensors", "png"), trained)
        return trained

    def test_colour_pictures_same_in_all_formats(self):
        trained = self.check_all("--made=3x32x32", "--classes=10")
        self.assertGreater(trained["test_accuracy"], 0.5)
        self.check_channels_last(trained)

    def turned(self, part):
        """Returns (dims, bytes) of an npy, as (n, H, W, C)."""
        (n, c, h, w), planes = npy(self.path("npy/%s-images.npy" % part))
        out = bytearray(len(planes))
        for i in range(n):
            first, last = i * c * h * w, (i + 1) * c * h * w
            for k in range(c):
                out[first + k:last:c] = planes[first + k * h * w:first + (k + 1) * h * w]
        return (n, h, w, c), bytes(out)

    def write_turned(self, form, part):
        dims, samples = self.turned(part)
        (n,), labels = npy(self.path("npy/%s-labels.npy" % part))
        prefix = self.path("nhwc-%s/%s" % (form, part))
        os.makedirs(os.path.dirname(prefix), exist_ok=True)
        if form == "idx":
            harness.write_samples(prefix, dims, samples, labels)
        elif form == "safetensors":
            end = len(samples) + n
            head = json.dumps({
                "images": {"dtype": "U8", "shape": dims, "data_offsets": [0, len(samples)]},
                "labels": {"dtype": "U8", "shape": [n], "data_offsets": [len(samples), end]},
            }).encode()
            with open(prefix + ".safetensors", "wb") as f:
                f.write(struct.pack("<Q", len(head)) + head + samples + labels)
        else:
            harness.write_file(prefix + "-images.npy", harness.npy("|u1", dims, samples))
            os.link(self.path("npy/%s-labels.npy" % part), prefix + "-labels.npy")

    def check_channels_last(self, trained):
        """Checks (n, H, W, C), the layout in which many programs save pictures."""
        forms = ("npy", "idx", "safetensors")
        for form in forms:
            for part in ("train", "test"):
                self.write_turned(form, part)
        layout = "--data_layout=nhwc"
        forms = ["nhwc-" + form for form in forms]
        s = self.check_training(forms, layout)
        self.assert_same(s, trained, "parameters_sha256", "test_loss")
        self.check_inference(forms[1:], trained, layout)

    def test_fashion_mnist_same_in_all_formats(self):
        if not os.path.exists(FASHION):
            self.skipTest("no %s: install dataset-fashion-mnist (scripts/setup)" % FASHION)
        trained = self.check_all("--from=" + FASHION)
        self.assertGreater(trained["test_accuracy"], 0.2)

    def test_network_of_pytorch_predicts_and_trains_on(self):
        """A network of PyTorch's own modules, on colour pictures of that size."""
        torch = weights.torch2(self)
        nn = torch.nn
        torch.manual_seed(4)
        features = nn.Sequential(nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2),
                                 nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2))
        classifier = nn.Sequential(nn.Flatten(), nn.Linear(576, 120), nn.ReLU(),
                                   nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
        net = nn.Sequential()
        net.add_module("features", features)
        net.add_module("classifier", classifier)
        self.make("npy", "--made=3x32x32", "--classes=10")
        dims, samples = npy(self.path("npy/test-images.npy"))
        _, labels = npy(self.path("npy/test-labels.npy"))
        x = torch.tensor(list(samples), dtype=torch.float32).reshape(dims) / 255
        y = net(x)
        loss = nn.functional.cross_entropy(y, torch.tensor(list(labels))).item()
        flags = self.first_values(weights.torch_state(net))
        s = self.train("npy", STILL, "--export=" + self.path("npy.export"), *flags)
        for predict in ([flags[0].replace("--init=", "--predict="), flags[1]],
                        ["--predict=" + self.path("npy.export")]):
            self.run_worker(*ALONE, *predict, "--output=" + self.path("out.csv"),
                            data=self.path("npy"), model="lenet5")
            far = weights.furthest(weights.predicted(self.path("out.csv")), y.softmax(1).tolist())
            print("PyTorch %s: furthest apart: %.2g" % (torch.__version__, far))
            self.assertLess(far, 1e-5)
        self.assertAlmostEqual(s["test_loss"], loss, delta=1e-5)
        self.assertEqual(s["test_accuracy"],
                         sum(int(k) == v for k, v in zip(y.argmax(1), labels)) / N_TEST)
        self.assertLess(self.train("npy", TRAIN, *flags)["test_loss"], loss)


harness.main(__name__)
