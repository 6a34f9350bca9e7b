#!/usr/bin/python3
"""scripts/setup_gpu_vm's decisions, on machines that are a folder and a table of answers: what apt,
dpkg, modprobe, nvidia-smi and the like would say stands in files, and each call is written down."""
# label: unit
import glob
import gzip
import os
import re
import shutil
import subprocess

import harness

SCRIPT = os.path.join(harness.SOURCE, "scripts/setup_gpu_vm")
DONE, FAILED, REFUSED, REBOOT = 0, 1, 2, 3
SHA256 = {"debian12": "e7f219eab6fe4819cdb5c15b98233dc3420302d9c00883219cd3d896857cf48d",
          "ubuntu2204": "d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df",
          "ubuntu2404": "d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba"}
RELEASE = {"debian12": 'ID=debian\nVERSION_ID="12"\n',
           "ubuntu2204": 'ID=ubuntu\nVERSION_ID="22.04"\n',
           "ubuntu2404": 'VERSION_ID="24.04"\nID=ubuntu\n'}
KERNEL = {"debian12": "6.1.0-28-cloud-amd64", "ubuntu2204": "6.8.0-1021-gcp",
          "ubuntu2404": "6.8.0-31-generic"}
FLAVOUR = {"debian12": "linux-headers-cloud-amd64", "ubuntu2204": "linux-headers-gcp",
           "ubuntu2404": "linux-headers-generic"}
# What all programs of such a machine do: $w has their answers, named as they are used here.
STUB = r"""#!/bin/sh
w=%s name=${0##*/}
case $name in
df) printf 'head\n/dev/sda1 1 1 %%s 1%%%% /\n' $(($(cat $w/free_gb) * 1048576)); exit ;;
uname) case $1 in -m) cat $w/machine ;; *) cat $w/kernel ;; esac; exit ;;
id) cat $w/uid; exit ;;
systemd-detect-virt) [ -e $w/container ]; exit ;;
dpkg-query) cat $w/dpkg; exit ;;
dpkg-deb) cat $w/recommends; exit ;;
mokutil) [ ! -e $w/enrolled ] || echo "$2 is already enrolled"; exit ;;
sha256sum) read -r sum path; [ "$(cat "$path")" = "$sum" ]; exit ;;
apt-cache)
    case $1 in
    policy) ! grep -qx "$2" $w/archive || echo "  Candidate: 580.95.05-1" ;;
    madison) cat $w/nccl ;;
    search) echo 'cuda-nvcc-12-9 - CUDA nvcc'; echo 'cuda-nvcc-13-2 - CUDA nvcc' ;;
    esac
    exit ;;
nvidia-smi) [ ! -e $w/no_card ] || { echo "No devices were found"; exit 6; }
    echo "GPU 0: Tesla T4 (UUID: GPU-1)"; exit ;;
esac
echo "$name $*" >>$w/calls
case $name in
env) shift; while [ "${1#*=}" != "$1" ]; do shift; done; exec "$@" ;;
apt-get)
    [ ! -e $w/apt_fails ] || case $* in *$(cat $w/apt_fails)*) echo E: no route; exit 100 ;; esac ;;
curl) while [ "$1" != -o ]; do shift; done; cat $w/keyring >"$2" ;;
git) for to; do :; done; mkdir -p $to/scripts && ln -s $0 $to/scripts/setup ;;
ninja) [ -e $w/no_cuda ] || { mkdir -p $2/lib; touch $2/lib/libweir_cuda.so; } ;;
modprobe) [ ! -e $w/no_module ] ;;
weir-worker) echo "$name $1"; [ ! -e $w/broken ] && echo "GPU is running!" ;;
esac
"""
TOOLS = ("df uname id systemd-detect-virt dpkg-query dpkg-deb dpkg mokutil sha256sum apt-cache "
         "apt-get apt-mark nvidia-smi "
         "curl modprobe weir-worker systemctl cmake ninja git env").split()


class Machine:
    """A fresh one with a T4 behind an emulated VGA card; write() and put() make it another."""

    def __init__(self, top, distribution="debian12"):
        self.root, self.world, self.bin = (os.path.join(top, d) for d in ("root", "world", "bin"))
        self.tree = os.path.join(top, "tree")
        for folder in (self.root, self.world, self.bin):
            os.makedirs(folder)
        stub = os.path.join(self.bin, "stub")
        with open(stub, "w", encoding="utf-8") as f:
            f.write(STUB % self.world)
        os.chmod(stub, 0o755)
        for tool in TOOLS:
            os.symlink(stub, os.path.join(self.bin, tool))
        for file in ("scripts/setup", "kernels/cuda/find.cmake"):
            path = os.path.join(self.tree, file)
            os.makedirs(os.path.dirname(path))
            os.symlink(stub, path)
        kernel = KERNEL[distribution]
        self.write("etc/os-release", RELEASE[distribution])
        os.makedirs(os.path.join(self.root, "etc/systemd/system"))
        self.write("proc/version", "Linux version %s (x86_64-linux-gnu-gcc-12 (D 12.2) x)" % kernel)
        self.pci("0000:00:01.0", "0x1013", "0x030000", "0x00b8")
        self.pci("0000:00:04.0", "0x10de", "0x030200", "0x1eb8")
        names = ["linux-headers-" + kernel, FLAVOUR[distribution], "nvidia-open",
                 "cuda-nvcc-13-0", "cuda-cudart-dev-13-0",
                 "libcublas-dev-13-0", "libcudnn9-cuda-13", "libcudnn9-dev-cuda-13",
                 "libcublas-13-0"]
        for name, text in (("free_gb", "50"), ("machine", "x86_64"), ("kernel", kernel),
                           ("uid", "0"), ("dpkg", ""), ("calls", ""),
                           ("keyring", SHA256[distribution]),
                           ("archive", "\n".join(names) + "\n"),
                           ("nccl", " libnccl2 | 2.30.1-1+cuda13.2 | x\n"
                                    " libnccl2 | 2.29.1-1+cuda12.9 | x\n"),
                           ("recommends", "libcudnn9-cuda-13, libcublas-13-0\n")):
            self.put(name, text)

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb" if isinstance(text, bytes) else "w") as f:
            f.write(text)

    def put(self, name, text=""):
        with open(os.path.join(self.world, name), "w", encoding="utf-8") as f:
            f.write(text)

    def take(self, name):
        os.unlink(os.path.join(self.world, name))

    def pci(self, address, vendor, kind, device):
        for name, text in (("vendor", vendor), ("class", kind), ("device", device)):
            self.write("sys/bus/pci/devices/%s/%s" % (address, name), text + "\n")

    def run(self, *flags, script=SCRIPT, source=True):
        """(exit status, what it said, what it called); flags of a usual run are added."""
        self.put("calls")
        if source:
            flags = ("--root=" + self.root, "--source=" + self.tree, *flags)
        done = subprocess.run(["/bin/bash", script, *flags], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60 * harness.PATIENCE,
                              env=dict(os.environ, PATH=self.bin + ":" + os.environ["PATH"]))
        with open(os.path.join(self.world, "calls"), encoding="utf-8") as f:
            calls = [c for c in f.read().splitlines() if not c.startswith("env ")]
        return done.returncode, done.stdout, calls

    def untouched(self):
        return not os.path.exists(os.path.join(self.root, "var"))


class SetupGpuVm(harness.Test):
    def machine(self, *arguments):
        top = os.path.join(self.dir(), "m%d" % len(os.listdir(self.dir())))
        return Machine(top, *arguments)

    def installs(self, calls):
        """[packages] of each apt-get install."""
        return [[w for w in c.split(" install ")[1].split()] for c in calls if " install " in c and
                c.startswith("apt-get")]

    def good(self, machine, *flags, **more):
        status, said, calls = machine.run(*flags, **more)
        self.assertEqual(status, DONE, said)
        return said, calls

    def refused(self, machine, words, *flags, status=REFUSED):
        code, said, calls = machine.run(*flags)
        self.assertEqual((code, calls), (status, []), said)
        self.assertIn(words, said)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertTrue(machine.untouched())

    def test_fresh_machines(self):
        for distribution, kernel in KERNEL.items():
            m = self.machine(distribution)
            if distribution == "ubuntu2204":
                self.refused(m, "Weir cannot be built on Ubuntu 22.04")
                said, calls = self.good(m, "--no_weir")
                self.assertIn("are installed; nvidia-smi finds 1 GPU(s)", said)
            else:
                said, calls = self.good(m)
                self.assertEqual([c.split()[0] for c in calls[-6:]], [
                    "setup", "cmake", "ninja", "cmake", "weir-worker", "weir-worker"])
                self.assertIn("GPU is running!\nsetup_gpu_vm: done\n", said)
            self.assertEqual(self.installs(calls), [
                ["ca-certificates", "curl", "dkms", "gcc-12", "linux-headers-" + kernel,
                 FLAVOUR[distribution]],
                ["nvidia-open"],
                ["cuda-nvcc-13-0", "cuda-cudart-dev-13-0", "libcublas-dev-13-0",
                 "libcudnn9-cuda-13", "libcudnn9-dev-cuda-13", "libnccl2=2.30.1-1+cuda13.2",
                 "libnccl-dev=2.30.1-1+cuda13.2"]])
            fetched = [c.split()[-1] for c in calls if c.startswith("curl ")]
            self.assertEqual(fetched, ["https://developer.download.nvidia.com/compute/cuda/repos/"
                                       "%s/x86_64/cuda-keyring_1.1-1_all.deb" % distribution])
            order = [c.split()[0] for c in calls if c.split()[0] not in ("apt-get", "curl")]
            self.assertEqual(order[:3], ["dpkg", "apt-mark", "modprobe"])
            self.assertIn("apt-mark hold nvidia-open", calls)
        # Once more: everything is done, and it still works.
        said, calls = self.good(m)
        self.assertEqual([c.split()[0] for c in calls], ["weir-worker", "weir-worker"])
        self.assertEqual(said.count("done before"), 6)

    def test_newer_name_of_the_driver(self):
        m = self.machine("ubuntu2404")
        m.put("archive", "\n".join(["nvidia-driver-open", "linux-headers-6.8.0-31-generic"]))
        _, calls = m.run("--no_weir")[1:]
        self.assertIn(["nvidia-driver-open"], self.installs(calls))

    def test_what_is_refused(self):
        m = self.machine()
        self.refused(m, "unknown argument '--debz=x'", "--debz=x")
        self.refused(m, "12.4 or newer", "--cuda=12.3")
        self.refused(m, "12.4 or newer", "--cuda=11.8")
        self.refused(m, "--resume is for --reboot", "--resume")
        self.refused(m, "letters, digits", "--debs=/x y")
        self.refused(m, "one of them", "--debs=" + m.bin)
        self.refused(m, "no source tree of Weir", "--source=" + m.bin)
        for name, text, words in (("machine", "aarch64", "only x86_64"), ("uid", "1000", "be root"),
                                  ("container", "", "container"), ("free_gb", "19", "larger disk")):
            m = self.machine()
            m.put(name, text)
            self.refused(m, words)
        m = self.machine()
        m.write("etc/os-release", "ID=fedora\nVERSION_ID=41\n")
        self.refused(m, "this is fedora 41")

    def test_cards_that_are_refused(self):
        m = self.machine()
        m.pci("0000:00:04.0", "0x10de", "0x040300", "0x1aeb")  # the sound of a card
        self.refused(m, "no NVIDIA GPU among the PCI devices")
        m.pci("0000:00:04.0", "0x10de", "0x030200", "0x1db1")  # V100
        self.refused(m, "0x1db1 is older than Turing")

    def test_secure_boot(self):
        m = self.machine()
        m.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
                b"\6\0\0\0\1")
        self.refused(m, "Secure Boot is on")
        m.write("var/lib/dkms/mok.pub", b"key")
        self.assertEqual(m.run()[0], REFUSED)
        m.put("enrolled")
        self.good(m)
        m = self.machine()
        m.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
                b"\6\0\0\0\0")
        self.good(m)

    def test_drivers_that_are_there(self):
        m = self.machine()
        m.put("dpkg", "installed nvidia-driver 535.247.01-1~deb12u1\n"
                      "installed nvidia-kernel-common 20151021+13\n")
        self.refused(m, "another driver is installed (nvidia-driver 535.247.01-1~deb12u1)")
        m = self.machine()
        m.write("usr/bin/nvidia-uninstall", "")
        self.refused(m, "NVIDIA's .run file")
        os.unlink(os.path.join(m.root, "usr/bin/nvidia-uninstall"))
        m.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for "
                "x86_64  580.95.05  Release Build  (dvs-builder@U22-I3-AE18-09-6)  Tue Sep 23\n")
        self.refused(m, "NVIDIA's .run file")
        _, calls = self.good(m, "--keep_driver")
        self.assertNotIn(["nvidia-open"], self.installs(calls))
        m = self.machine()
        m.write("proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15\n")
        self.refused(m, "driver 535 is too old for CUDA 13.0, which needs 580", "--keep_driver")
        self.refused(self.machine(), "no NVIDIA driver is loaded", "--keep_driver")
        m = self.machine()  # what an image of the cloud's has
        m.put("dpkg", "installed nvidia-driver-580-open 580.95.05-0ubuntu0.22.04.2\n"
                      "installed nvidia-driver-assistant 0.22.1-1\n")
        _, calls = self.good(m)
        self.assertNotIn(["nvidia-open"], self.installs(calls))
        m = self.machine()  # broken off between two packages
        m.put("dpkg", "installed nvidia-kernel-open-dkms 580.95.05-1\n")
        _, calls = self.good(m)
        self.assertIn(["nvidia-open"], self.installs(calls))

    def test_reboot_and_go_on(self):
        m = self.machine()
        m.write("sys/module/nouveau/refcnt", "1")
        status, said, calls = m.run()
        self.assertEqual(status, REBOOT, said)
        self.assertIn("reboot, then run this again", said)
        self.assertFalse([c for c in calls if c.startswith("systemctl")])
        shutil.rmtree(os.path.join(m.root, "sys/module"))
        said, calls = self.good(m)
        self.assertEqual(self.installs(calls)[0][0], "cuda-nvcc-13-0")
        # A driver that a boot does not bring is an error, not another boot.
        m = self.machine()
        for name in ("no_module", "no_card"):
            m.put(name)
        self.assertEqual(m.run()[0], REBOOT)
        status, said, _ = m.run()
        self.assertEqual(status, FAILED, said)
        self.assertIn("No devices were found", said)

    def test_kernel_without_headers(self):
        m = self.machine()
        m.put("kernel", "6.1.0-9-cloud-amd64")
        status, said, calls = m.run("--reboot", "--resume")
        self.assertEqual(status, DONE, said)
        self.assertEqual(self.installs(calls)[-1][-2:],
                         ["linux-image-cloud-amd64", "linux-headers-cloud-amd64"])
        self.assertEqual(calls[-2:], ["systemctl enable weir-setup.service", "systemctl reboot"])
        unit = os.path.join(m.root, "etc/systemd/system/weir-setup.service")
        with open(unit, encoding="utf-8") as f:
            flags = f.read().split("ExecStart=/bin/bash /var/lib/weir-setup/setup_gpu_vm ")[1]
        m.put("kernel", KERNEL["debian12"])
        copy = os.path.join(m.root, "var/lib/weir-setup/setup_gpu_vm")
        said, calls = self.good(m, *flags.split("\n")[0].split(), script=copy, source=False)
        self.assertEqual(self.installs(calls)[0], ["nvidia-open"])
        self.assertIn("systemctl disable weir-setup.service", calls)
        self.assertFalse(os.path.exists(unit))

    def test_another_keyring(self):
        m = self.machine()
        m.put("keyring", "something else")
        status, said, calls = m.run()
        self.assertEqual(status, FAILED, said)
        self.assertIn("is not the file that is known", said)
        self.assertFalse([c for c in calls if c.startswith("dpkg ")])

    def test_a_step_that_fails_is_done_again(self):
        m = self.machine()
        m.put("apt_fails", "libcudnn9")
        status, said, _ = m.run()
        self.assertEqual(status, FAILED)
        self.assertIn("E: no route\nsetup_gpu_vm: this failed: env", said)
        m.take("apt_fails")
        said, calls = self.good(m)
        self.assertEqual(self.installs(calls)[0][0], "cuda-nvcc-13-0")
        m.put("broken")
        status, said, _ = m.run()
        self.assertEqual(status, FAILED, said)
        self.assertIn("weir-worker --self_test: the lines above", said)
        m.put("dpkg", "installed nvidia-open 580.95.05-1\n")
        m.take("broken")
        self.assertEqual(len(self.installs(self.good(m, "--again")[1])), 2)
        m = self.machine()
        status, said, _ = m.run("--cuda=13.9")
        self.assertEqual(status, FAILED, said)
        self.assertIn("has no cuda-nvcc-13-9: say another --cuda, as 13.2", said)

    def test_debian_packages(self):
        m = self.machine()
        debs = os.path.join(m.world, "debs")
        os.mkdir(debs)
        flags = ("--root=" + m.root, "--debs=" + debs)
        status, said, _ = m.run(*flags, source=False)
        self.assertEqual(status, REFUSED)
        self.assertIn("weir-cuda_*.deb have to lie there", said)
        for name in ("weir_0.1.0-1_amd64.deb", "weir-cuda_0.1.0-1_amd64.deb"):
            m.put("debs/" + name)
        m.put("apt_fails", "--simulate")
        status, said, calls = m.run(*flags, source=False)
        self.assertEqual(status, FAILED)
        self.assertIn("are not for debian12", said)
        self.assertEqual(len(self.installs(calls)), 1)
        m.take("apt_fails")
        _, calls = self.good(m, *flags, source=False)
        self.assertEqual(self.installs(calls)[-2:], [
            ["libcudnn9-cuda-13", "libcublas-13-0", "libnccl2=2.30.1-1+cuda13.2"],
            sorted(glob.glob(debs + "/*"), key=lambda p: "cuda" in p)])

    def test_built_without_cuda(self):
        m = self.machine()
        m.put("no_cuda")
        status, said, _ = m.run()
        self.assertEqual(status, FAILED, said)
        self.assertIn("Weir was built without CUDA", said)

    def test_dry_run(self):
        m = self.machine()
        m.put("uid", "1000")
        said, calls = self.good(m, "--dry_run")
        self.assertEqual(calls, [])
        self.assertTrue(m.untouched())
        self.assertIn("    apt-mark hold nvidia-open\n", said)
        self.assertIn("setup_gpu_vm: nothing was changed\n", said)

    def test_start_up_script(self):
        m = self.machine()
        status, said, _ = m.run("--print_start_up")
        self.assertEqual(status, REFUSED, said)
        self.assertIn("the new machine has no Weir", said)
        script = os.path.join(self.dir(), "start_up")
        flags = ("--root=" + m.root, "--reboot", "--source=https://example.org/weir.git")
        said, _ = self.good(m, *flags, "--print_start_up", source=False)
        self.assertLess(len(gzip.compress(said.encode())), 16384)  # what AWS takes
        with open(script, "w", encoding="utf-8") as f:
            f.write(said)
        said, calls = self.good(m, script=script, source=False)
        clone = "git clone --depth 1 https://example.org/weir.git %s/opt/weir" % m.root
        self.assertIn(clone, calls)
        self.assertIn("GPU is running!", said)

    def test_the_lines_of_the_page(self):
        with open(os.path.join(harness.SOURCE, "docs/start-cloud.md"), encoding="utf-8") as f:
            text = f.read()
        lines = re.findall(r"^    scripts/setup_gpu_vm ?(.*)$", text, re.M)
        self.assertEqual(len(lines), 3)
        for line in lines:
            flags = line.partition(" >")[0].replace("REPOSITORY", "https://example.org/w.git")
            self.good(self.machine(), *flags.split())
        named = set(re.findall(r"`(?:scripts/setup_gpu_vm )?(--[a-z_]+)", text.split("\n## C")[0]))
        others = {"--self_test", "--list_devices", "--help"}
        self.assertEqual(named - others - self.flags(), set())

    def flags(self):
        """Those of the script, as --help has them."""
        said, _ = self.good(self.machine(), "--help", source=False)
        return set(re.findall(r"^ *(--\w+)", said, re.M))

    def test_cards_behind_switches(self):
        m = self.machine()
        m.pci("0000:00:09.0", "0x10de", "0x068000", "0x22a3")
        status, said, _ = m.run()
        self.assertEqual(status, FAILED, said)
        self.assertIn("NVSwitches", said)
        with open(os.path.join(m.world, "archive"), "a", encoding="utf-8") as f:
            f.write("nvidia-fabricmanager-580\n")
        _, calls = self.good(m)
        self.assertIn(["nvidia-fabricmanager-580"], self.installs(calls))
        self.assertIn("systemctl enable nvidia-fabricmanager", calls)


if __name__ == "__main__":
    harness.main()
