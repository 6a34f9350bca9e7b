#!/usr/bin/python3
"""The decisions of scripts/setup_gpu_vm on imitated machines. Such a machine is a folder and a
table of answers: files contain the answers of apt, dpkg, modprobe, nvidia-smi and the like, and
each call is recorded."""
# label: unit
import glob
import gzip
import os
import re
import shutil
import signal
import subprocess

import harness

SCRIPT = harness.source("scripts/setup_gpu_vm")
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
# The stub of all programs of such a machine: $w has their answers, named as they are used here.
STUB = r"""#!/bin/sh
w=%s name=${0##*/}
case $name in
df) printf 'head\n/dev/sda1 1 1 %%s 1%%%% /\n' $(($(cat $w/free_gb) * 1048576)); exit ;;
uname) case $1 in -m) cat $w/machine ;; *) cat $w/kernel ;; esac; exit ;;
id) cat $w/uid; exit ;;
systemd-detect-virt) [ -e $w/container ]; exit ;;
dpkg-query) # -W -f FORMAT PATTERN...; a line of the table: "installed" package version depends
    format=$3; shift 3; set -f
    while read -r status package version depends; do
        for pattern; do
            case $package in $pattern) ;; *) continue ;; esac
            case $format in *Depends*) version=$depends ;; esac
            echo "$status $package $version"; break
        done
    done <$w/dpkg; exit ;;
dpkg-deb) cat $w/recommends; exit ;;
mokutil) # 0.6 (Debian 12, Ubuntu) ends with 1 where the key is enrolled, 0.7 the other way round
    [ -e $w/enrolled ] || { echo "$2 is not enrolled"; exit $(cat $w/mokutil_07); }
    echo "$2 is already enrolled"; exit $((1 - $(cat $w/mokutil_07))) ;;
sha256sum) read -r sum path; [ "$(cat "$path")" = "$sum" ]; exit ;;
apt-cache)
    case $1 in
    policy) sed -n "s/^$2 \(.*\)/  Candidate: \1/p" $w/archive | head -n 1 ;;
    madison) [ $2 != libnccl2 ] || cat $w/nccl; sed -n "s/^$2 \(.*\)/ $2 | \1 | x/p" $w/archive ;;
    search) echo 'cuda-nvcc-12-9 - CUDA nvcc'; echo 'cuda-nvcc-13-2 - CUDA nvcc' ;;
    esac
    exit ;;
nvidia-smi) [ ! -e $w/no_card ] || { echo "No devices were found"; exit 6; }
    echo "GPU 0: Tesla T4 (UUID: GPU-1)"; exit ;;
esac
echo "$name $*" >>$w/calls
case $name in
env) shift; while [ "${1#*=}" != "$1" ]; do shift; done; exec "$@" ;;
lslocks) [ ! -e $w/lists_locked ] || { rm $w/lists_locked; echo /var/lib/apt/lists/lock; } ;;
apt-get)
    [ ! -e $w/lists_locked ] || { echo E: Could not get lock; exit 100; }
    [ ! -e $w/apt_fails ] || case $* in *$(cat $w/apt_fails)*) echo E: no route; exit 100 ;; esac
    case $* in *nvidia*open) # with its dependencies
        for to; do :; done; version=$(sed -n "s/^$to //p" $w/archive)
        for to in $to libcuda1 nvidia-kernel-open-dkms; do
            echo "installed $to $version" >>$w/dpkg
        done ;;
    esac ;;
curl) while [ "$1" != -o ]; do shift; done; cat $w/keyring >"$2" ;;
git) case $1 in init) mkdir -p $3/scripts && ln -sf $0 $3/scripts/setup ;; esac ;;
systemctl) # a shutdown ends all programs
    case $* in
    reboot) [ -e $w/slow_shutdown ] || kill -TERM $PPID ;;
    is-active*) [ -e $w/active ] ;;
    esac ;;
ninja) [ -e $w/no_cuda ] || { mkdir -p $2/lib; touch $2/lib/libweir_cuda.so; } ;;
modprobe) [ ! -e $w/no_module ] ;;
weir-worker) echo "$name $1"; [ ! -e $w/broken ] && echo "GPU is running!" ;;
esac
"""
TOOLS = ("df uname id systemd-detect-virt dpkg-query dpkg-deb dpkg mokutil sha256sum apt-cache "
         "apt-get apt-mark lslocks nvidia-smi "
         "curl modprobe weir-worker systemctl cmake ninja git env").split()


class Machine:
    """A fresh machine with a T4 behind an emulated VGA card; write() and put() change it."""

    def __init__(self, top, distribution="debian12"):
        self.root, self.world, self.bin = (os.path.join(top, d) for d in ("root", "world", "bin"))
        self.tree = os.path.join(top, "tree")
        for folder in (self.root, self.world, self.bin):
            os.makedirs(folder)
        stub = os.path.join(self.bin, "stub")
        harness.write_file(stub, STUB % self.world)
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
                           ("uid", "0"), ("dpkg", ""), ("calls", ""), ("mokutil_07", "0"),
                           ("keyring", SHA256[distribution]),
                           ("archive", "".join(n + " 580.95.05-1\n" for n in names)),
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
        harness.write_file(os.path.join(self.world, name), text)

    def add(self, name, text):
        harness.append_file(os.path.join(self.world, name), text)

    def loaded(self, version, kind="NVIDIA UNIX Open Kernel Module for x86_64"):
        self.write("proc/driver/nvidia/version", "NVRM version: %s  %s  Release Build  "
                   "(dvs-builder@U22-I3-AE18-09-6)  Tue Sep 23\n" % (kind, version))

    def remove(self, name):
        os.unlink(os.path.join(self.world, name))

    def pci(self, address, vendor, kind, device):
        for name, text in (("vendor", vendor), ("class", kind), ("device", device)):
            self.write("sys/bus/pci/devices/%s/%s" % (address, name), text + "\n")

    def run(self, *flags, script=SCRIPT, source=True):
        """Returns (exit status, output, calls); flags of a usual run are added."""
        if source:
            flags = ("--root=" + self.root, "--source=" + self.tree, *flags)
        running = self.start(flags, script)
        said = running.communicate(timeout=60 * harness.PATIENCE)[0]
        return running.returncode, said, self.calls()

    def start(self, flags, script=SCRIPT):
        self.put("calls")
        return subprocess.Popen(["/bin/bash", script, *flags], cwd=self.world, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=dict(os.environ, PATH=self.bin + ":" + os.environ["PATH"]))

    def calls(self):
        with open(os.path.join(self.world, "calls"), encoding="utf-8") as f:
            return [c for c in f.read().splitlines() if not c.startswith(("env ", "lslocks "))]

    def untouched(self):
        return not os.path.exists(os.path.join(self.root, "var"))


class SetupGpuVm(harness.Test):
    def machine(self, *arguments, **files):
        """Returns a machine with these files of its world: name="text"."""
        machine = Machine(self.path("m%d" % len(os.listdir(self.dir()))), *arguments)
        for name, text in files.items():
            machine.put(name, text)
        return machine

    def installs(self, calls):
        """Returns [packages] of each apt-get install."""
        return [[w for w in c.split(" install ")[1].split()] for c in calls if " install " in c and
                c.startswith("apt-get")]

    def good(self, machine, *flags, **more):
        status, said, calls = machine.run(*flags, **more)
        self.assertEqual(status, DONE, said)
        return said, calls

    def ends(self, machine, status, words, *flags, **more):
        """Checks the end of a run, and that it prints the words; returns its calls."""
        code, said, calls = machine.run(*flags, **more)
        self.assertEqual(code, status, said)
        self.assertIn(words, said)
        return calls

    def refused(self, machine, words, *flags, status=REFUSED):
        code, said, calls = machine.run(*flags)
        self.assertEqual((code, calls), (status, []), said)
        self.assertIn(words, said)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertTrue(machine.untouched())

    def refused_later(self, machine, words, *flags):
        """Checks a refusal on a machine where the script has run before."""
        self.assertEqual(self.ends(machine, REFUSED, words, *flags), [])

    def test_fresh_machines_set_up(self):
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
            self.assertEqual([c for c in calls if c.startswith("apt-mark")], [
                "apt-mark hold nvidia-open libcuda1 nvidia-kernel-open-dkms",
                "apt-mark unhold libnccl2 libnccl-dev", "apt-mark hold libnccl2 libnccl-dev"])
        # A second run, as at each boot, has nothing to do. It does not touch the card, which may be
        # training, and succeeds also if the disk is full by now.
        m.put("free_gb", "0")
        said, calls = self.good(m)
        self.assertEqual(calls, [])
        self.assertEqual(said.count("done before"), 7)
        said, calls = self.good(m, "--dry_run", "--again")
        self.assertNotIn("done before", said)
        self.assertIn("weir-worker", self.good(m, "--again")[1][-1])

    def test_newer_name_of_the_driver_installed(self):
        m = self.machine("ubuntu2404")
        m.put("archive", "nvidia-driver-open 590.1-1\nlinux-headers-6.8.0-31-generic 6.8\n")
        _, calls = m.run("--no_weir")[1:]
        self.assertIn(["nvidia-driver-open"], self.installs(calls))

    def test_bad_arguments_refused(self):
        m = self.machine()
        self.refused(m, "unknown argument '--debz=x'", "--debz=x")
        self.refused(m, "12.4 or newer", "--cuda=12.3")
        self.refused(m, "12.4 or newer", "--cuda=11.8")
        self.refused(m, "--resume needs --reboot", "--resume")
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

    def test_unsupported_cards_refused(self):
        m = self.machine()
        m.pci("0000:00:04.0", "0x10de", "0x040300", "0x1aeb")  # the audio function of a card
        self.refused(m, "no NVIDIA GPU among the PCI devices")
        m.pci("0000:00:04.0", "0x10de", "0x030200", "0x1db1")  # V100
        self.refused(m, "0x1db1 is older than Turing, and Weir has kernels for Turing")
        m.loaded("580.95.05")
        self.refused(m, "choose a machine with a T4", "--keep_driver")
        self.refused(m, "--no_weir --keep_driver", "--no_weir")
        self.good(m, "--no_weir", "--keep_driver")

    def test_secure_boot_refused_without_driver(self):
        m = self.machine()
        m.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
                b"\6\0\0\0\1")
        self.refused(m, "Secure Boot is on")
        m.write("var/lib/dkms/mok.pub", b"key")
        self.assertEqual(m.run()[0], REFUSED)
        m.put("enrolled")
        self.good(m)
        m.put("mokutil_07", "1")
        self.good(m)
        m.remove("enrolled")
        self.refused_later(m, "Secure Boot is on")
        m.loaded("580.95.05")  # the kernel has accepted it
        self.good(m, "--keep_driver")
        m = self.machine()
        m.write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
                b"\6\0\0\0\0")
        self.good(m)

    def test_installed_drivers_kept_or_refused(self):
        m = self.machine()
        m.put("dpkg", "installed nvidia-driver 535.247.01-1~deb12u1\n"
                      "installed nvidia-kernel-common 20151021+13\n")
        self.refused(m, "another driver is installed (nvidia-driver 535.247.01-1~deb12u1)")
        m = self.machine()
        m.write("usr/bin/nvidia-uninstall", "")
        self.refused(m, "NVIDIA's .run file")
        os.unlink(os.path.join(m.root, "usr/bin/nvidia-uninstall"))
        m.loaded("580.95.05")
        self.refused(m, "NVIDIA's .run file")
        m.put("kernel", "6.1.0-9-cloud-amd64")  # the archive lacks its headers, which are
        _, calls = self.good(m, "--keep_driver")  # not needed: the driver must stay as it is
        self.assertEqual(self.installs(calls)[0], ["ca-certificates", "curl"])
        self.assertEqual(self.installs(calls)[1][0], "cuda-nvcc-13-0")
        self.assertEqual([c for c in calls if c.startswith(("modprobe", "apt-mark"))][0],
                         "apt-mark unhold libnccl2 libnccl-dev")
        self.assertNotIn("modprobe", self.good(self.kept(), "--dry_run", "--keep_driver")[0])
        m = self.machine()
        m.loaded("535.183.01", "NVIDIA UNIX x86_64 Kernel Module")
        said = "driver 535.183.01 is too old for CUDA 13.0, which needs 580: update it"
        self.refused(m, said, "--keep_driver")
        self.refused(self.machine(), "no NVIDIA driver is loaded", "--keep_driver")
        m = self.machine()  # an image of the cloud's
        m.put("dpkg", "installed nvidia-driver-580-open 580.95.05-0ubuntu0.22.04.2\n"
                      "installed nvidia-driver-assistant 0.22.1-1\n")
        _, calls = self.good(m)
        self.assertNotIn(["nvidia-open"], self.installs(calls))
        self.assertIn("apt-mark hold nvidia-driver-580-open", calls)
        m.loaded("580.95.05")
        m.put("kernel", "6.1.0-9-cloud-amd64")
        self.assertEqual(self.installs(self.good(m, "--again")[1])[0], [
            "ca-certificates", "curl", "dkms", "gcc-12", "linux-headers-cloud-amd64"])
        m = self.machine()  # interrupted between two packages
        m.put("dpkg", "installed nvidia-kernel-open-dkms 580.95.05-1\n")
        _, calls = self.good(m)
        self.assertIn(["nvidia-open"], self.installs(calls))

    def kept(self):
        m = self.machine()
        m.loaded("580.82.07")
        return m

    def test_kept_driver_is_held(self):
        m = self.machine()
        m.put("dpkg", "installed libnvidia-ml1 535.247.01-1~deb12u1\n"
                      "installed nvidia-container-toolkit 1.17.8-1\n"
                      "installed nvidia-driver 535.247.01-1~deb12u1\n"
                      "installed nvidia-kernel-common 20151021+13\n")
        m.loaded("535.247.01")
        for name in "cuda-nvcc-12-9 cuda-cudart-dev-12-9 libcublas-dev-12-9".split():
            m.add("archive", name + " 1\n")
        m.add("archive", "libcudnn9-cuda-12 1\nlibcudnn9-dev-cuda-12 1\n")
        _, calls = self.good(m, "--keep_driver", "--cuda=12.9")
        self.assertIn("apt-mark hold libnvidia-ml1 nvidia-driver", calls)

    def test_reboot_continues_setup(self):
        m = self.machine()
        m.write("sys/module/nouveau/refcnt", "1")
        calls = self.ends(m, REBOOT, "reboot, then run this again")
        self.assertFalse([c for c in calls if c.startswith("systemctl")])
        shutil.rmtree(os.path.join(m.root, "sys/module"))
        said, calls = self.good(m)
        self.assertEqual(self.installs(calls)[0][0], "cuda-nvcc-13-0")
        # A driver that a boot does not load is an error, not another boot.
        m = self.machine()
        for name in ("no_module", "no_card"):
            m.put(name)
        self.assertEqual(m.run()[0], REBOOT)
        self.ends(m, FAILED, "No devices were found")

    def test_kernel_without_headers_replaced(self):
        m = self.machine(kernel="6.1.0-9-cloud-amd64")
        status, said, calls = m.run("--reboot", "--resume")
        self.assertEqual(status, REBOOT, said)
        self.assertEqual(self.installs(calls)[-1][-2:],
                         ["linux-image-cloud-amd64", "linux-headers-cloud-amd64"])
        self.assertEqual(calls[-2:], ["systemctl enable weir-setup.service", "systemctl reboot"])
        unit = os.path.join(m.root, "etc/systemd/system/weir-setup.service")
        status, said, _ = m.run(*self.unit_flags(unit), script=self.copy(m), source=False)
        self.assertEqual(status, FAILED)  # the boot brought the old kernel again: no second boot
        self.assertIn("kernel 6.1.0-9-cloud-amd64 still runs", said)
        m.put("kernel", KERNEL["debian12"])
        said, calls = self.good(m, *self.unit_flags(unit), script=self.copy(m), source=False)
        self.assertEqual(self.installs(calls)[0][-2:], [
            "linux-headers-" + KERNEL["debian12"], "linux-headers-cloud-amd64"])
        self.assertEqual(self.installs(calls)[1], ["nvidia-open"])
        self.assertIn("systemctl disable weir-setup.service", calls)
        self.assertFalse(os.path.exists(unit))

    def copy(self, machine):
        return os.path.join(machine.root, "var/lib/weir-setup/setup_gpu_vm")

    def unit_flags(self, unit):
        with open(unit, encoding="utf-8") as f:
            flags = f.read().split("ExecStart=/bin/bash /var/lib/weir-setup/setup_gpu_vm ")[1]
        return flags.split("\n")[0].split()

    def test_kernel_of_another_series_keeps_its_series(self):
        """Ubuntu 24.04 with the kernel of a later release: generic is not its series."""
        m = self.machine("ubuntu2404", kernel="6.11.0-26-generic")
        m.put("dpkg", "installed linux-image-6.11.0-26-generic 6.11.0-26.26 linux-modules-6.11\n"
              "installed linux-image-generic 6.8.0-31.31 linux-image-6.8.0-31-generic, x\n"
              "installed linux-image-generic-hwe-24.04 6.11.0-26.26 "
              "linux-image-6.11.0-26-generic (= 6.11.0-26.26), linux-firmware\n")
        m.add("archive", "linux-headers-6.11.0-26-generic 1\nlinux-headers-generic-hwe-24.04 1\n")
        _, calls = self.good(m)
        self.assertEqual(self.installs(calls)[0][-2:], [
            "linux-headers-6.11.0-26-generic", "linux-headers-generic-hwe-24.04"])

    def test_lock_held_until_reboot(self):
        """The script holds the lock until the shutdown ends it, so that no other run begins a
        step."""
        m = self.machine()
        m.write("sys/module/nouveau/refcnt", "1")
        m.put("slow_shutdown")
        running = m.start(["--root=" + m.root, "--source=" + m.tree, "--reboot"])
        try:
            harness.until(lambda: "systemctl reboot" in m.calls(), "a reboot", 60)
            lock = os.path.join(m.root, "var/lib/weir-setup/lock")
            self.assertEqual(subprocess.run(["flock", "-n", lock, "true"]).returncode, 1)
            self.assertIsNone(running.poll())
        finally:
            running.send_signal(signal.SIGTERM)
            said = running.communicate(timeout=60)[0]
        self.assertEqual(running.returncode, REBOOT, said)

    def test_locks_of_a_fresh_machine_waited_for(self):
        """On a fresh machine its own updates hold the locks of apt's lists and of dpkg for a
        while."""
        m = self.machine(lists_locked="")
        self.good(m)
        m.put("dpkg")
        m.run("--build", script=harness.source("scripts/setup"), source=False)
        self.assertIn("apt-get -o DPkg::Lock::Timeout=600 install ", m.calls()[-1])

    def test_full_disk_of_resumed_run_refused(self):
        m = self.machine(apt_fails="libcudnn9")
        self.assertEqual(m.run()[0], FAILED)
        m.remove("apt_fails")
        m.put("free_gb", "4")  # Weir is not begun
        self.refused_later(m, "4 GB are free on /, and 5 are needed")
        m.put("free_gb", "5")
        self.good(m)

    def test_wrong_keyring_refused(self):
        m = self.machine(keyring="something else")
        calls = self.ends(m, FAILED, "is not the file that is known")
        self.assertFalse([c for c in calls if c.startswith("dpkg ")])

    def test_failed_step_repeated(self):
        m = self.machine(apt_fails="libcudnn9")
        self.ends(m, FAILED, "E: no route\nsetup_gpu_vm: this failed: env")
        m.remove("apt_fails")
        m.put("broken")
        status, said, calls = m.run()
        self.assertEqual(status, FAILED, said)
        self.assertEqual(self.installs(calls)[0][0], "cuda-nvcc-13-0")
        self.assertIn("weir-worker --self_test: the lines above", said)
        m.remove("broken")
        self.assertEqual(len(self.good(m)[1]), 2)
        self.assertEqual(len(self.installs(self.good(m, "--again")[1])), 2)
        m = self.machine()
        self.ends(m, FAILED, "has no cuda-nvcc-13-9: use another --cuda, as 13.2", "--cuda=13.9")

    def test_debian_packages_installed(self):
        m = self.machine()
        debs = os.path.join(m.world, "debs")
        os.mkdir(debs)
        flags = ("--root=" + m.root, "--debs=debs", "--reboot", "--resume")
        self.ends(m, REFUSED, "weir-cuda_*.deb are missing there", *flags, source=False)
        for name in ("weir_0.1.0-1_amd64.deb", "weir-cuda_0.1.0-1_amd64.deb"):
            m.put("debs/" + name)
        m.put("apt_fails", "--simulate")
        calls = self.ends(m, FAILED, "are not for debian12", *flags, source=False)
        self.assertEqual(len(self.installs(calls)), 1)
        m.remove("apt_fails")
        m.write("sys/module/nouveau/refcnt", "1")
        self.assertEqual(m.run(*flags, source=False)[0], REBOOT)
        unit = os.path.join(m.root, "etc/systemd/system/weir-setup.service")
        self.assertIn("--debs=" + debs, self.unit_flags(unit))  # the script's folder is /
        _, calls = self.good(m, *self.unit_flags(unit), source=False)
        self.assertEqual(self.installs(calls)[-2:], [
            ["libcudnn9-cuda-13", "libcublas-13-0", "libnccl2=2.30.1-1+cuda13.2"],
            sorted(glob.glob(debs + "/*"), key=lambda p: "cuda" in p)])

    def test_build_without_cuda_fails(self):
        m = self.machine(no_cuda="")
        self.ends(m, FAILED, "Weir was built without CUDA")

    def test_dry_run_calls_nothing(self):
        m = self.machine(uid="1000")
        said, calls = self.good(m, "--dry_run")
        self.assertEqual(calls, [])
        self.assertTrue(m.untouched())
        self.assertIn("    apt-mark hold nvidia-open\n", said)
        self.assertIn("setup_gpu_vm: nothing was changed\n", said)

    def test_start_up_script_is_complete(self):
        m = self.machine()
        self.ends(m, REFUSED, "the new machine has no Weir", "--print_start_up")
        script = self.path("start_up")
        flags = ("--root=" + m.root, "--reboot", "--source=https://example.org/weir.git")
        said, _ = self.good(m, *flags, "--print_start_up", source=False)
        self.assertLess(len(gzip.compress(said.encode())), 16384)  # limit of AWS
        harness.write_file(script, said)
        fetch = "git -C %s/opt/weir fetch --depth 1 https://example.org/%s HEAD"
        said, calls = self.good(m, script=script, source=False)
        self.assertIn(fetch % (m.root, "weir.git"), calls)
        self.assertIn("GPU is running!", said)
        _, calls = self.good(m, "--source=https://example.org/other.git", "--again")
        self.assertIn(fetch % (m.root, "other.git"), calls)
        self.ends(m, REFUSED, "write its whole path", "--debs=here", "--print_start_up",
                  source=False)

    def test_lines_of_the_page_accepted(self):
        text = harness.read_source("docs/start/cloud.md")
        lines = re.findall(r"^    scripts/setup_gpu_vm ?(.*)$", text, re.M)
        self.assertEqual(len(lines), 3)
        for line in lines:
            flags = line.partition(" >")[0].replace("REPOSITORY", "https://example.org/w.git")
            self.good(self.machine(), *flags.split())
        named = set(re.findall(r"`(?:scripts/setup_gpu_vm )?(--[a-z_]+)", text.split("\n## C")[0]))
        others = {"--self_test", "--list_devices", "--help"}
        self.assertEqual(named - others - self.flags(), set())

    def flags(self):
        """Returns the flags of the script, from --help."""
        said, _ = self.good(self.machine(), "--help", source=False)
        return set(re.findall(r"^ *(--\w+)", said, re.M))

    def behind_switches(self, machine):
        machine.pci("0000:00:09.0", "0x10de", "0x068000", "0x22a3")
        return machine

    def test_cards_behind_switches_get_fabric_manager(self):
        m = self.behind_switches(self.machine())
        m.add("archive", "nvidia-fabricmanager 580.105.08-1\n")  # a version for another driver
        self.ends(m, FAILED, "no nvidia-fabricmanager of driver 580.95.05")
        m.add("archive", "nvidia-fabricmanager-580 580.105.08-1\n"
                         "nvidia-fabricmanager-580 580.95.05-1\n")
        _, calls = self.good(m)  # the driver is there by now
        self.assertEqual(self.installs(calls)[0], ["nvidia-fabricmanager-580=580.95.05-1"])
        self.assert_has(calls, "apt-mark hold nvidia-open libcuda1 nvidia-kernel-open-dkms",
                        "apt-mark hold nvidia-fabricmanager-580",
                        "systemctl enable nvidia-fabricmanager")
        m = self.behind_switches(self.kept())
        status, said, _ = m.run("--keep_driver")
        self.assertIn("no nvidia-fabricmanager of driver 580.82.07", said)
        m.put("active")
        self.good(m, "--keep_driver")


harness.main(__name__)
