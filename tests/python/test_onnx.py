#!/usr/bin/python3
"""python3 -m weir.onnx converts networks that the worker trained to ONNX. Their outputs equal those
of --predict, sample by sample. The command reports faults of its files in one line. onnxruntime
evaluates the ONNX networks if it is installed (scripts/check_onnx), otherwise
tests/python/onnx_numpy.py."""
# label: cluster computes
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import unittest
from unittest import mock

import golden
import harness
import weights

sys.path.insert(0, harness.source("python"))
from weir import onnx as weir_onnx  # noqa: E402
try:
    import numpy
    import onnx
    import onnx_numpy
except ImportError as missing:
    onnx, WHY = None, str(missing)

TOLERANCE = 1e-5  # for probabilities: float32 in both
ALONE = ["--intra_op_threads=1", "--seed=5", "--optimizer=sgd"]
# A training step that changes almost nothing.
STILL = [*ALONE, "--learning_rate=1e-30", "--train_steps=1", "--batch_size=10"]
# A network with features that no other network here has: strides, windows that are not square,
# paddings, layers with two inputs, two layers that read the image.
EVERY = {"name": "every", "input": "auto", "classes": "auto", "layers": [
    {"type": "conv2d", "name": "probabilities", "filters": 4, "kernel": [3, 4], "stride": [2, 1],
     "padding": "same"},
    {"type": "max_pool", "kernel": [2, 3], "stride": [1, 2], "padding": "same"},
    {"type": "conv2d", "name": "side", "input": "image", "filters": 3, "kernel": 4,
     "stride": 2, "padding": 2, "bias": False},
    {"type": "avg_pool", "name": "small", "kernel": [1, 3], "stride": [1, 1], "padding": [0, 1]},
    {"type": "concat", "inputs": ["max_pool1", "small"]},
    {"type": "batch_norm"}, {"type": "relu"}, {"type": "gelu"}, {"type": "tanh"},
    {"type": "dropout", "rate": 0.2}, {"type": "silu"}, {"type": "leaky_relu", "slope": 0.3},
    {"type": "avg_pool", "name": "all", "kernel": "global"},
    {"type": "flatten"},
    {"type": "dense", "name": "hidden", "units": 9, "bias": False},
    {"type": "batch_norm"},
    {"type": "sigmoid"}, {"type": "multiply", "inputs": ["hidden", "sigmoid1", "hidden"]},
    {"type": "sum", "name": "total"}, {"type": "sum", "name": "cells", "input": "max_pool1"},
    {"type": "conv2d", "name": "columns", "input": "image", "filters": 5, "kernel": [9, 2]},
    {"type": "factorization_machine", "name": "pairs"},
    {"type": "concat", "inputs": ["hidden", "sigmoid1", "multiply1", "total", "cells", "pairs"]},
    {"type": "dense", "units": "classes"}, {"type": "mean_squared_error"}]}


class Onnx(harness.Test):
    def setUp(self):
        super().setUp()
        if onnx is None:
            self.skipTest("the Python package onnx is not installed: " + WHY)

    def trained(self, model, data, *flags):
        """Returns the export of a short training."""
        self.run_worker(*ALONE, "--batch_size=8", "--train_steps=3", *flags, data=data,
                        model=model, seconds=120)
        return self.path("w.safetensors")

    def compare(self, model, export, data, images, *options):
        """Compares the ONNX network's outputs with those of --predict; returns the name of the
        network's output."""
        name = model if "/" in model else os.path.join(harness.MODELS, model + ".json")
        weir_onnx.main([*options, name, export, self.path("o.onnx")])
        onnx.checker.check_model(self.path("o.onnx"), full_check=True)
        self.run_worker("--intra_op_threads=1", "--predict=" + export,
                        "--output=" + self.path("p.npy"), data=data, model=model)
        output, got = onnx_numpy.run(self.path("o.onnx"), images)
        rows = numpy.load(self.path("p.npy"))
        want = rows[output]
        self.assertEqual(got.shape, want.shape)
        far = float(numpy.abs(got - want).max())
        print("%s, %s: furthest %.2g" % (os.path.basename(model), options, far))
        self.assertLess(far, TOLERANCE * max(1, numpy.abs(want).max()))
        self.assertGreater(float(numpy.ptp(want, axis=0).max()), 50 * TOLERANCE)  # not all the same
        return output

    def bytes_of(self, data):
        got = weights.read_idx(os.path.join(data, "t10k-images-idx3-ubyte"), 16)
        return numpy.frombuffer(got, "u1").reshape(-1, 1, 28, 28)

    def test_models_of_weir_predict_the_same(self):
        data = self.new_folder("data")
        harness.make_data(data, 48, 24)
        golden.make_targets(data)
        images = self.bytes_of(data)
        names = {file[:-5] for file in os.listdir(harness.MODELS)}
        for model in sorted(names.difference(golden.WITH_TABLES)):
            its = golden.data_of(data, model)
            export = self.trained(model, its, "--export=" + self.path("w.safetensors"))
            self.assertEqual(self.compare(model, export, its, images.astype("f4") / 255),
                             "outputs" if model in golden.ON_TARGETS else "probabilities")
        done = subprocess.run([sys.executable, "-B", "-m", "weir.onnx", model, export,
                               self.path("o.onnx")], cwd=harness.source("python"),
                              capture_output=True, text=True, check=False,
                              # The programs can find the model by its name.
                              env={**os.environ, "WEIR_PROGRAMS": harness.BIN})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        found = onnx.load(self.path("o.onnx"))
        self.assertIn("bytes divided by 255", found.graph.doc_string)
        self.assertEqual(found.graph.input[0].type.tensor_type.shape.dim[0].dim_param, "batch")
        self.assertEqual({p.key: p.value for p in found.metadata_props}["global_step"], "3")
        export = self.trained("mlp", data, "--export=" + self.path("w.safetensors"),
                              "--hidden_units=7", "--mean=0.3", "--std=measured")
        self.compare_with_hidden(export, data, images)

    def compare_with_hidden(self, export, data, images):
        """Compares the outputs with --uint8. The size of a hidden layer is that of the flag
        --hidden_units, not that of the model's file."""
        model = harness.read_json(os.path.join(harness.MODELS, "mlp.json"))
        first = next(l for l in model["layers"] if l["type"] == "dense")
        first["units"] = 7  # the worker's --predict below has no --hidden_units
        harness.write_file(self.path("seven.json"), json.dumps(model))
        self.compare(self.path("seven.json"), export, data, images, "--uint8")
        made = weir_onnx.convert(os.path.join(harness.MODELS, "mlp.json"), export, uint8=True)
        self.assertEqual(made.graph.input[0].type.tensor_type.elem_type, onnx.TensorProto.UINT8)

    def test_every_layer_predicts_the_same(self):
        """The tests use normalised colour pictures, and a network with targets."""
        rng = numpy.random.default_rng(3)
        data = self.new_folder("data")
        for part, n in (("train", 64), ("test", 30)):
            images = rng.integers(0, 256, (n, 3, 9, 7), dtype="u1")
            numpy.save(os.path.join(data, part + "-images.npy"), images)
            numpy.save(os.path.join(data, part + "-labels.npy"),
                       rng.random((n, 4), dtype="f4"))
        model = self.path("every.json")
        for loss, output in (("mean_squared_error", "outputs"),
                             ("sigmoid_cross_entropy", "outputs"),
                             ("mean_squared_error", "scores"),
                             ("sigmoid_cross_entropy", "probabilities")):
            EVERY["layers"][-1] = {"type": loss}
            if output == "scores":
                EVERY["layers"][-1]["one_hot"] = True
            harness.write_file(model, json.dumps(EVERY))
            if output != "outputs":
                for part, n in (("train", 64), ("test", 30)):
                    numpy.save(os.path.join(data, part + "-labels.npy"), numpy.arange(n) % 4)
            export = self.trained(model, data, "--export=" + self.path("w.safetensors"),
                                  "--mean=0.4,0.5,0.6", "--std=measured")
            self.assertEqual(self.compare(model, export, data, images.astype("f4") / 255), output)

    def test_standardized_tables_predict_the_same(self):
        """Samples are floats, or whole numbers, which --uint8 reads as bytes."""
        rng = numpy.random.default_rng(5)
        data = self.new_folder("table")
        for kind, options in (("f4", []), ("u1", ["--uint8"])):
            for part, n in (("train", 64), ("test", 30)):
                rows = (rng.random((n, 4)) * [200, 20, 100, 50] + [3, 100, 0, 9]).astype(kind)
                numpy.save(os.path.join(data, part + "-images.npy"), rows)
                numpy.save(os.path.join(data, part + "-labels.npy"), numpy.arange(n) % 3)
            export = self.trained("mlp", data, "--export=" + self.path("w.safetensors"),
                                  "--standardize")
            self.compare("mlp", export, data, rows.reshape(-1, 1, 1, 4), *options)

    def test_named_input_predicts_the_same(self):
        rng = numpy.random.default_rng(6)
        data, model = self.new_folder("named"), self.path("named.json")
        root = harness.read_json(os.path.join(harness.MODELS, "mlp.json"))
        del root["input"]
        root["inputs"] = {"numbers": {"type": "dense", "shape": "auto"}}
        root["layers"][0]["input"] = "numbers"
        harness.write_file(model, json.dumps(root))
        for part, n in (("train", 64), ("test", 30)):
            rows = 9 * rng.random((n, 4), dtype="f4")
            numpy.save(os.path.join(data, part + "-images.npy"), rows)
            numpy.save(os.path.join(data, part + "-labels.npy"), numpy.arange(n) % 3)
        export = self.trained(model, data, "--export=" + self.path("w.safetensors"))
        self.compare(model, export, data, rows.reshape(-1, 1, 1, 4))

    def test_networks_of_pytorch_predict_the_same(self):
        """The networks contain residual additions, layer norms, and an embedding, whose input is
        whole numbers."""
        for name in sorted(os.listdir(golden.PREDICTIONS)):
            folder, data = os.path.join(golden.PREDICTIONS, name), self.path(name)
            os.mkdir(data)
            for file in os.listdir(folder):
                if file.startswith("test-"):
                    shutil.copy(os.path.join(folder, file), data)
                    shutil.copy(os.path.join(folder, file),
                                os.path.join(data, file.replace("test", "train")))
            model, names = (os.path.join(folder, file) for file in ("model.json", "map"))
            self.run_worker(*STILL, "--init=" + os.path.join(folder, "state.safetensors"),
                            *(["--init_map=" + names] if os.path.exists(names) else []),
                            "--export=" + self.path("w.safetensors"), data=data, model=model)
            n = len(harness.read_json(os.path.join(folder, "predictions.json"))["probabilities"])
            idx = next(f for f in os.listdir(data) if f.startswith("test-images"))
            flat = numpy.frombuffer(weights.read_idx(os.path.join(data, idx), 0), "u1")
            n_dims = int(idx[idx.index("idx") + 3])
            images = flat[4 + 4 * n_dims:].reshape(n, -1, *self.extents(flat, n_dims))
            images = images.astype("i8") if name == "words" else images.astype("f4") / 255
            self.compare(model, self.path("w.safetensors"), data, images)

    def extents(self, flat, n_dims):
        """Returns height and width from an IDX file's head."""
        head = numpy.frombuffer(flat[4:4 + 4 * n_dims].tobytes(), ">i4")
        return head[-2:]


class Declared(unittest.TestCase):
    def test_layer_keys_are_the_workers(self):
        """The script supports the same keys of layers as the worker."""
        text = harness.read_source("worker/model/model_layers.c")
        one = {"ONE": "input", "COMMON": ""}
        rows = re.findall(r'\{"(\w+)", (ONE|COMMON)(?: "([^"]*)")?,\s+build_', text)
        self.assertEqual({name: (one[of] + more).split() for name, of, more in rows},
                         {name: keys.split() for name, keys in weir_onnx.KEYS.items()})
        self.assertIn('#define COMMON "%s"' % weir_onnx.COMMON, text)


class Errors(harness.Test):
    """The tests compare the messages of the command, also without the package onnx."""

    def said(self, model, export):
        with self.assertRaises(SystemExit) as end, mock.patch("sys.stderr.write") as write:
            weir_onnx.main([model, export, self.path("o.onnx")])
        self.assertEqual(end.exception.code, 1)
        text = "".join(call.args[0] for call in write.call_args_list)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertFalse(os.path.exists(self.path("o.onnx")))
        return text

    def test_missing_package_named(self):
        with mock.patch.dict(sys.modules, {"onnx": None}):
            self.assertIn("apt-get install python3-onnx, or pip install onnx",
                          self.said(os.path.join(harness.MODELS, "mlp.json"), "none"))

    @unittest.skipIf(onnx is None, "the Python package onnx is not installed")
    def test_mismatched_files_refused(self):
        export, model = self.path("w.safetensors"), self.path("m.json")
        softmax = os.path.join(harness.MODELS, "softmax.json")
        good = {"output/weights": ("F32", (10, 784), [0.0] * 7840),
                "output/biases": ("F32", (10,), [0.0] * 10)}
        name = next(l for l in harness.read_json(softmax)["layers"] if l["type"] ==
                    "dense").get("name", "dense1")
        good = {k.replace("output", name): v for k, v in good.items()}

        def layers(text):
            return '{"layers": [%s, {"type": "mean_squared_error"}]}' % text

        def write(tensors, metadata=None):
            weights.write(export, tensors, {"sample": "1x28x28", **(metadata or {})})
        for tensors, words in (
                ({**good, "more": ("F32", (1,), [0.0])}, "more belongs to no layer"),
                ({k: v for k, v in good.items() if "biases" not in k}, "has no %s/biases" % name),
                ({**good, name + "/weights": ("F32", (10, 9), [0.0] * 90)},
                 "has the shape [10, 9]"),
                ({**good, name + "/biases": ("F64", (10,), [0.0] * 10)}, "is F64, but only F32")):
            write(tensors)
            self.assertIn(words, self.said(softmax, export))
        write(good, {"sample": ""})
        self.assertIn("set --input=", self.said(softmax, export))
        for text, words in (
                ("{", "not valid JSON"), ('{"layers": 1}', 'no list "layers"'),
                ('{"layers": [{"type": "relu"}]}', "the last layer is no loss"),
                ('{"layers": [{"type": "gru"}, {"type": "mean_squared_error"}]}', "not converted"),
                ('{"layers": [{"type": "relu", "input": "a"}, {"type": "mean_squared_error"}]}',
                 "reads a layer that does not exist"),
                ('{"input": [1, 2, 2], "layers": [{"type": "max_pool", "kernel": 3}, '
                 '{"type": "mean_squared_error"}]}', "its kernel is larger"),
                *((layers('{"type": "relu"}, ' + text), words) for text, words in (
                    ('{"type": "add", "inputs": []}', '"inputs" must be 2 names or more'),
                    ('{"type": "relu", "name": ["a"]}', "layer 2 (relu): \"name\" must be"),
                    ('{"type": "relu", "input": ["a"]}', '"input" must be a name'),
                    ('{"type": "relu", "name": "relu1"}', "another layer has this name"),
                    ('{"type": "relu", "name": "image"}', "another layer has this name"),
                    ('{"type": "relu", "untis": 3}', 'unknown key "untis"'),
                    ('{"type": "relu", "input": "image"}', "no layer reads its output"),
                    ('{"type": "mean_squared_error"}', "must be the last layer"),
                    ('{"type": "layer_norm", "epsilon": []}', '"epsilon" must be a number'))),
                ('{"clases": 3, "layers": []}', 'unknown key "clases"'),
                ('{"inputs": {}, "layers": []}', "an object with one input, without"),
                ('{"inputs": {"x": {"type": "dense", "shape": [1, 1, 2]}, "k": {"type": "keys"}}, '
                 '"layers": []}', "input 'k' has keys of rows, which are on servers"),
                ('{"inputs": {"x": {"type": "dense", "shape": [1, 28, 28]}}, "layers": [{"type": '
                 '"relu", "input": "image"}, {"type": "mean_squared_error"}]}',
                 "layer 1 'relu1' (relu) reads a layer that does not exist"),
                ('{"name": [], "layers": []}', '"name" must be')):
            write(good)
            harness.write_file(model, text if '"input": [' in text or '"shape"' in text else
                               text.replace("{", '{"input": [1, 28, 28], ', 1)
                               if len(text) > 1 else text)
            self.assertIn(words, self.said(model, export))
        for header in ('{"__metadata__": null}', '{"__metadata__": {"sample": 1}}',
                       '{"a": {"dtype": "F32", "shape": [[]], "data_offsets": [0, 0]}}'):
            harness.write_file(export, struct.pack("<Q", len(header)) + header.encode())
            self.assertIn("not a safetensors file", self.said(softmax, export))
        harness.write_file(export, b"PK\3\4 and more of a .pt file")
        self.assertIn("not a safetensors file", self.said(softmax, export))
        self.assertIn("No such file", self.said(self.path("none.json"), export + "2"))


harness.main(__name__)
