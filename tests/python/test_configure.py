"""What CMake says where a library is not what the build can use: a oneDNN of an unknown major
version, an nvcc that knows none of the GPUs to build for."""
# label: cluster computes
import os
import re
import subprocess
import tempfile

import harness

NVCC = "#!/bin/sh\n[ \"$1\" = --list-gpu-code ] && printf 'sm_75\\nsm_90\\nsm_90a\\n'\n"
THERE = ["CUDNN_INCLUDE", "CUDART_INCLUDE", "CUDNN_LIBRARY", "CUBLAS_LIBRARY", "CUDART_LIBRARY"]


class Configure(harness.Test):
    @classmethod
    def setUpClass(cls):
        """One build folder for all, where CMake looks for compilers and libraries once."""
        folder = tempfile.TemporaryDirectory(prefix="weir-configure-")
        cls.addClassCleanup(folder.cleanup)
        cls.build = folder.name

    def write(self, path, text, mode=0o644):
        path = os.path.join(self.dir(), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def configure(self, *settings):
        """Exit status, and what was said, as one line."""
        done = subprocess.run(["cmake", "-S", harness.SOURCE, "-B", self.build, "-G", "Ninja",
                               "-DCMAKE_C_COMPILER=gcc", *("-D" + s for s in settings)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120 * harness.PATIENCE, check=False)
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    def targets(self):
        return subprocess.run(["ninja", "-C", self.build, "-t", "targets", "all"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def one_dnn(self, major):
        self.write("include/oneapi/dnnl/dnnl.h", "")
        self.write("include/oneapi/dnnl/dnnl_version.h",
                   "#define DNNL_VERSION_MAJOR %d\n#define DNNL_VERSION_MINOR 1\n" % major)
        return self.configure("NVCC=NO", "DNNL_INCLUDE=" + os.path.join(self.dir(), "include"),
                              "DNNL_LIBRARY=/lib/libdnnl.so")

    def test_unknown_one_dnn(self):
        """Its backend is left out, with the version that is there and those that would do."""
        status, said = self.one_dnn(4)
        self.assertEqual(status, 0, said)
        self.assertIn("the worker is built without its CPU backend: it needs libdnnl, version 2 or "
                      "3 (here are the headers of 4), and OpenMP", said)
        self.assertNotIn("libweir_cpu", self.targets())

    def test_known_one_dnn(self):
        """That the test above can tell."""
        status, said = self.one_dnn(3)
        self.assertEqual(status, 0, said)
        self.assertNotIn("without its CPU backend", said)
        self.assertEqual(re.findall(r"kernels/cpu/dnnl_(\d)\.c\.o:", self.targets()), ["3"])

    def cuda(self, architectures):
        nvcc = self.write("nvcc", NVCC, 0o755)
        return nvcc, *self.configure("NVCC=" + nvcc, "WEIR_CUDA_ARCHITECTURES=" + architectures,
                                     "DNNL_INCLUDE=NOTFOUND",
                                     *(name + "=/usr/include" for name in THERE))

    def test_unknown_gpus(self):
        nvcc, status, said = self.cuda("70;103")
        self.assertNotEqual(status, 0, said)
        self.assertIn("-DWEIR_CUDA_ARCHITECTURES=70;103 names no GPU that %s can build for; it "
                      "knows: 75 90 90a" % nvcc, said)

    def test_one_known_gpu(self):
        _, status, said = self.cuda("70;90")
        self.assertEqual(status, 0, said)
        with open(os.path.join(self.build, "build.ninja"), encoding="utf-8") as f:
            commands = f.read()
        self.assertIn("arch=compute_90,code=sm_90", commands)
        self.assertNotIn("compute_70", commands)


if __name__ == "__main__":
    harness.main()
