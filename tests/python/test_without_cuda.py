"""Only libweir_cuda.so needs CUDA: a worker runs on a machine without driver and CUDA libraries,
however it was built. (A test by hand in Debian 12 without these libraries had the same result.)"""
# label: cluster
import os
import re
import subprocess

import fake_gpus
import harness

CUDA = re.compile(r"lib(cuda|cudart|cudnn|cublas|nccl|nvrtc|nvidia|nvml)[\w.-]*", re.IGNORECASE)
LIB = os.path.join(harness.BIN, "../lib")


def cuda_names(text):
    return sorted({m.group(0) for m in CUDA.finditer(text)})


class WithoutCuda(fake_gpus.Machine):
    def test_programs_do_not_link_to_cuda(self):
        for path in (harness.program("worker"), harness.program("ps"),
                     os.path.join(LIB, "libweir_cpu.so")):
            linked = subprocess.run(["ldd", path], check=True, stdout=subprocess.PIPE, text=True)
            self.assertIn("libc.so", linked.stdout)
            self.assertEqual(cuda_names(linked.stdout), [], path)

    def looked_for(self, *flags):
        """Returns the CUDA libraries that a worker requests from the dynamic linker when it
        trains."""
        env = self.env((), LD_DEBUG="files", LD_DEBUG_OUTPUT=self.path("loads"))
        process = self.start_program("worker", "--models_dir=" + harness.MODELS, "--model=mlp",
                                     "--train_steps=2", "--batch_size=4", "--data_dir=" +
                                     self.data(), "--gpu_lock_dir=" + self.locks(), *flags, env=env)
        process.wait(60)
        path = "%s.%d" % (env["LD_DEBUG_OUTPUT"], process.popen.pid)
        with open(path, encoding="utf-8", errors="replace") as f:
            asked = re.findall(r"file=(\S+) \[0\];  (?:needed|dynamically loaded)", f.read())
        self.assertTrue(any("libweir_cpu.so" in a for a in asked), asked[:50])
        return cuda_names("\n".join(asked))

    def test_training_on_cpu_loads_no_cuda_library(self):
        self.assertEqual(self.looked_for("--gpus=none"), [])

    def test_missing_driver_loads_no_other_cuda_library(self):
        if fake_gpus.there("libcuda.so.1"):
            self.skipTest("this machine has a driver")
        self.assertEqual(self.looked_for(), ["libcuda.so.1"])


harness.main(__name__)
