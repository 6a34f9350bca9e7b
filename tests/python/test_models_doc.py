"""docs/guide/models.md's scripts for an export, in PyTorch and in ONNX Runtime, predict the same as
--predict."""
# label: cluster
import importlib.util
import os
import re
import sys
import unittest

import harness
import weights


def lacks(*modules):
    return ", ".join(m for m in modules if not importlib.util.find_spec(m))


class ModelsDoc(harness.Test):
    def script(self, module):
        with open(harness.source("docs/guide/models.md"), encoding="utf-8") as f:
            found = re.findall(r"^```python\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL)
        (script,) = [s for s in found if s.startswith("import %s\n" % module)]
        return script

    def compare(self, module, convert=None):
        """Runs the page's script in a folder with the files that the page makes before it."""
        import numpy
        export = self.path("lenet5.safetensors")
        predicted = self.path("p.npy")
        self.run_worker("--gpus=none", "--intra_op_threads=1", "--train_steps=20",
                        "--export=" + export, model="lenet5")
        self.run_worker("--gpus=none", "--intra_op_threads=1", "--predict=" + export,
                        "--output=" + predicted, model="lenet5")
        if convert:
            convert(["--uint8", os.path.join(harness.MODELS, "lenet5.json"), export,
                     self.path("lenet5.onnx")])
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir())
        names = {}
        page = "docs/guide/models.md"
        exec(compile(self.script(module), page, "exec"), names)  # pylint: disable=W0122
        got = weights.read_idx(os.path.join(self.data(), "t10k-images-idx3-ubyte"), 16)
        images = numpy.frombuffer(bytearray(got), "u1").reshape(-1, 1, 28, 28)
        want = numpy.load(predicted)["probabilities"]
        far = float(abs(names["predict"](images) - want).max())
        print("%s: furthest %.2g" % (module, far))
        self.assertLess(far, 1e-5)
        self.assertGreater(float(numpy.ptp(want, axis=0).max()), 0.01)  # not all the same

    @unittest.skipIf(lacks("torch", "safetensors", "numpy"),
                     "needs PyTorch (pip install torch safetensors numpy): no "
                     + lacks("torch", "safetensors", "numpy"))
    def test_script_for_pytorch_predicts_the_same(self):
        self.compare("torch")

    @unittest.skipIf(lacks("onnxruntime", "onnx", "numpy"),
                     "needs ONNX Runtime (pip install onnx onnxruntime): no "
                     + lacks("onnxruntime", "onnx", "numpy"))
    def test_script_for_onnxruntime_predicts_the_same(self):
        sys.path.insert(0, harness.source("python"))
        from weir import onnx
        self.compare("onnxruntime", onnx.main)


harness.main(__name__)
