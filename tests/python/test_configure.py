"""CMake's messages for a library that the build cannot use: a oneDNN of an unknown major version,
an nvcc that supports none of the GPUs to build for, a CUDA or cuDNN that is too old."""
# label: cluster computes
import os
import re
import tempfile

import harness

# A stand-in for nvcc, with a version and a list of GPUs, that compiles or fails.
NVCC = """#!/bin/sh
case "$*" in
--version) echo "Cuda compilation tools, release %s, V0" ;;
--list-gpu-code) printf '%s' ;;
*) echo "$0: error: -- unsupported GNU version! gcc versions later than 13 are not supported!"
    exit %d ;;
esac
"""
KNOWS = "sm_75\\nsm_90\\nsm_90a\\n"


class Configure(harness.Test):
    @classmethod
    def setUpClass(cls):
        """Makes one build folder for all tests, in which CMake searches for compilers and libraries
        once."""
        folder = tempfile.TemporaryDirectory(prefix="weir-configure-")
        cls.addClassCleanup(folder.cleanup)
        cls.build = folder.name

    def write(self, path, text, mode=0o644):
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        harness.write_file(path, text)
        os.chmod(path, mode)
        return path

    def configure(self, *settings):
        """Returns the exit status and the messages as one line. BUILD_TESTING is off unless
        `settings` turn it on."""
        done = harness.run(["cmake", "-S", harness.SOURCE, "-B", self.build, "-G", "Ninja",
                            "-DCMAKE_C_COMPILER=gcc", "-DBUILD_TESTING=OFF",
                            *(s if s[0] == "-" else "-D" + s for s in settings)],
                           timeout=120 * harness.PATIENCE)
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    def targets(self):
        return harness.check_output(["ninja", "-C", self.build, "-t", "targets", "all"])

    def one_dnn(self, major):
        self.write("include/oneapi/dnnl/dnnl.h", "")
        self.write("include/oneapi/dnnl/dnnl_version.h",
                   "#define DNNL_VERSION_MAJOR %d\n#define DNNL_VERSION_MINOR 1\n" % major)
        return self.configure("NVCC=NO", "DNNL_INCLUDE=" + self.path("include"),
                              "DNNL_LIBRARY=/lib/libdnnl.so")

    def test_unknown_one_dnn_excludes_cpu_backend(self):
        """The message names the installed version and the supported ones."""
        status, said = self.one_dnn(4)
        self.assertEqual(status, 0, said)
        self.assertIn("the worker is built without its CPU backend: it needs libdnnl, version 2 or "
                      "3 (here are the headers of 4), and OpenMP", said)
        self.assertNotIn("libweir_cpu", self.targets())

    def test_known_one_dnn_builds_cpu_backend(self):
        """Proves that the test above can fail."""
        status, said = self.one_dnn(3)
        self.assertEqual(status, 0, said)
        self.assertNotIn("without its CPU backend", said)
        self.assertEqual(re.findall(r"kernels/cpu/dnnl_(\d)\.c\.o:", self.targets()), ["3"])

    def toolkit(self, version="12.4", cudnn="9.0.0", nvcc=None, knows=KNOWS, fails=0, nccl="2.18"):
        """Makes a folder with an nvcc, and beside it headers and libraries as pip lays them out."""
        cuda = [int(v) for v in version.split(".")]
        dnn = cudnn.split(".")
        for path, text in {
                "cuda_runtime/include/cuda_runtime_api.h":
                    "#define CUDART_VERSION  %d%02d0\n" % (cuda[0], cuda[1]),
                "cuda_nvcc/include/crt/host_defines.h": "",
                "cuda_cccl/include/nv/target": "",
                "cublas/include/cublas_v2.h": "",
                "cublas/include/cublas_api.h": "#define CUBLAS_VER_MAJOR %d\n" % cuda[0],
                "cudnn/include/cudnn.h": "",
                "cudnn/include/cudnn_version.h":
                    "#define CUDNN_MAJOR %s\n#define CUDNN_MINOR %s\n" % tuple(dnn[:2]),
                "nccl/include/nccl.h":
                    "#define NCCL_MAJOR %s\n#define NCCL_MINOR %s\n" % tuple(nccl.split(".")),
                "cuda_runtime/lib/libcudart.so.%d" % cuda[0]: "",
                "cublas/lib/libcublas.so.%d" % cuda[0]: "",
                "cublas/lib/libcublasLt.so.%d" % cuda[0]: "",
                "cudnn/lib/libcudnn.so.%s" % dnn[0]: "",
                "nccl/lib/libnccl.so.2": ""}.items():
            self.write("nvidia/" + path, text)
        return self.write("bin/nvcc", NVCC % (nvcc or version, knows, fails), 0o755)

    def cuda(self, *settings, **toolkit):
        """Returns CMake's lines about the CUDA backend with such a toolkit, and nvcc's path."""
        nvcc = self.toolkit(**toolkit)
        forget = ["-UWEIR_WERROR", "-UWEIR_CUDA_ARCHITECTURES"] # cached by the previous test
        for name in ("CUDART", "CUDA_CRT", "CUDA_CCCL", "CUBLAS", "CUBLASLT", "CUDNN", "NCCL"):
            forget += ["-U%s_INCLUDE" % name, "-U%s_LIBRARY" % name]
        return nvcc, *self.configure(*forget, "NVCC=" + nvcc, "DNNL_INCLUDE=NOTFOUND",
                                     "WEIR_CUDA_ROOTS=" + self.path("nvidia"), *settings)

    def commands(self):
        return harness.read_text(os.path.join(self.build, "build.ninja"))

    def assert_built_without(self, why, *settings, **toolkit):
        nvcc, status, said = self.cuda(*settings, **toolkit)
        self.assertEqual(status, 0, said)
        self.assertIn("CUDA backend: left out, it needs CUDA 12.4 or newer (nvcc, cuBLAS, cudart) "
                      "and cuDNN 9: ", said)
        self.assertIn(why.format(nvcc=nvcc, nvidia=self.path("nvidia")), said)
        targets = self.targets()
        self.assertIn("bin/worker", targets)
        self.assertNotIn("libweir_cuda", targets)
        return targets

    def test_old_cuda_excludes_backend(self):
        targets = self.assert_built_without(
            "the headers in {nvidia}/cuda_runtime/include are of CUDA 12.3; {nvcc} is of CUDA 12.3",
            "BUILD_TESTING=ON", version="12.3")
        self.assertNotIn("libweir_emulated", targets)

    def test_old_cudnn_excludes_backend(self):
        self.assert_built_without("the headers in {nvidia}/cudnn/include are of cuDNN 8",
                                  cudnn="8.9.7")

    def test_nvcc_of_another_cuda_excludes_backend(self):
        self.assert_built_without("{nvcc} is of CUDA 13.0, the headers in "
                                  "{nvidia}/cuda_runtime/include of CUDA 12", nvcc="13.0")

    def test_nvcc_that_refuses_the_compiler_excludes_backend(self):
        self.assert_built_without("{nvcc} cannot compile, and may need an older C++ compiler "
                                  "(-DWEIR_CUDA_HOST_COMPILER=g++-12): {nvcc}: error: -- "
                                  "unsupported GNU version!", fails=1)

    def test_libraries_of_pip_found(self):
        """CMake finds libraries without links to them, also of CUDA 13. Warnings of nvcc are errors
        only on request."""
        for version, settings in (("12.4", ()), ("13.1", ("WEIR_WERROR=ON",))):
            _, status, said = self.cuda(*settings, "BUILD_TESTING=ON", version=version)
            self.assertEqual(status, 0, said)
            self.assertIn("libweir_cuda.so", self.targets(), said)
            self.assertIn("libweir_emulated.so", self.targets(), said)
            for library in ("cudnn/lib/libcudnn.so.9", "cublas/lib/libcublas.so." + version[:2],
                            "cublas/lib/libcublasLt.so." + version[:2],
                            "cuda_runtime/lib/libcudart.so." + version[:2]):
                self.assertIn(self.path("nvidia", library), self.commands())
            nvcc = [c for c in self.commands().split("\n") if "-c " in c and "bin/nvcc" in c]
            self.assertTrue(nvcc)
            for command in nvcc:
                self.assertEqual("-Werror" in command, bool(settings), command)

    def test_headers_of_other_pip_packages_found(self):
        """The compiler finds the headers that the runtime's headers include."""
        _, status, said = self.cuda()
        self.assertEqual(status, 0, said)
        for package in ("cuda_nvcc", "cuda_cccl"):
            self.assertIn("-isystem %s/nvidia/%s/include" % (self.dir(), package), self.commands())

    def test_old_nccl_excludes_nccl_only(self):
        _, status, said = self.cuda(nccl="2.17")
        self.assertEqual(status, 0, said)
        self.assertIn("CUDA backend: built without NCCL, it needs 2.18 or newer, %s has 2.17" %
                      self.path("nvidia/nccl/include"), said)
        self.assert_has(self.targets(), "libweir_cuda.so", "comm_absent.c.o")

    def test_unknown_gpus_refused(self):
        nvcc, status, said = self.cuda("WEIR_CUDA_ARCHITECTURES=70;103")
        self.assertNotEqual(status, 0, said)
        self.assertIn("-DWEIR_CUDA_ARCHITECTURES=70;103 names no GPU that %s can build for; it "
                      "knows: 75 90 90a" % nvcc, said)

    def built_for(self, *settings, **toolkit):
        _, status, said = self.cuda(*settings, **toolkit)
        self.assertEqual(status, 0, said)
        found = re.findall(r"arch=compute_(\w+),code=(\w+)", self.commands())
        return list(dict.fromkeys(found))

    def test_known_gpu_built(self):
        self.assertEqual(self.built_for("WEIR_CUDA_ARCHITECTURES=90;70"),
                         [("90", "sm_90"), ("90", "compute_90")])

    def test_all_known_gpus_built(self):
        """The GPUs may be listed in any order. The build adds PTX for the newest GPU whose code
        later GPUs can run."""
        self.assertEqual(self.built_for("WEIR_CUDA_ARCHITECTURES=90a;90;75"),
                         [("75", "sm_75"), ("90", "sm_90"), ("90a", "sm_90a"),
                          ("90", "compute_90")])

    def test_default_gpus_depend_on_nvcc(self):
        knows = "".join("sm_%d\\n" % c for c in (70, 75, 80, 86, 89, 90, 100, 103, 120, 121))
        everything = [("%d" % c, "sm_%d" % c) for c in (75, 80, 86, 89, 90, 100, 120)]
        self.assertEqual(self.built_for(knows=knows, version="13.0"),
                         everything + [("120", "compute_120")])
        self.assertEqual(self.built_for(),
                         [everything[0], everything[4], ("90", "compute_90")])


harness.main(__name__)
