"""A small disk for the checkpoints of a cluster: an image in a file, mounted on the checkpoint
folder. The disk can be full, and it can hang like a lost file server: a process that writes then
waits, and cannot even die until the disk is repaired."""
import os
import shutil
import subprocess

import harness
import namespaces

IMAGE_BYTES = 48 << 20
CLONE_NEWNS = 0x20000
# The disk thaws when this program ends in any way, because the pipe closes then.
HANG = 'fsfreeze --freeze "$1" || exit 1; echo hangs; read -r line; fsfreeze --unfreeze "$1"'


class Disk:
    def __init__(self, folder, image):
        self.folder, self.image = folder, image
        self.fill = os.path.join(folder, "not-ours")
        self.hanger = None
        with open(image, "wb") as f:
            f.truncate(IMAGE_BYTES)
        os.makedirs(folder, exist_ok=True)
        namespaces.run("mkfs.ext4", "-q", "-m", "0", image)
        namespaces.run("mount", "-o", "loop", image, folder)

    def hang(self):
        self.hanger = subprocess.Popen(["sh", "-c", HANG, "sh", self.folder],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.hanger.stdout.readline() != b"hangs\n":
            self.repair()
            raise harness.Failure("fsfreeze: %s cannot be made to hang" % self.folder)

    def repair(self):
        """Ends the fault of the disk, if it has one."""
        if self.hanger:
            self.hanger.stdin.close()
            self.hanger.wait()
            self.hanger.stdout.close()
            self.hanger = None
        if os.path.exists(self.fill):
            os.remove(self.fill)

    def fill_up(self):
        block = b"\0" * (64 << 10)
        with open(self.fill, "wb", buffering=0) as f:
            while block:
                try:
                    f.write(block)
                except OSError:
                    block = block[:len(block) // 2]

    def close(self):
        self.repair()
        namespaces.run("umount", "--lazy", self.folder)
        os.remove(self.image)


def own_mounts():
    """Moves this program to a mount namespace, so that its mounts are invisible to other programs
    and end with it."""
    if harness.LIBC.unshare(CLONE_NEWNS) != 0:
        raise harness.Failure("no mounts of its own")
    namespaces.run("mount", "--make-rprivate", "/")


def why_not(folder):
    """Returns None, or why there can be no such disk here. The program calls it once, before it
    mounts anything."""
    if os.geteuid() != 0:
        return "mounting needs root"
    for tool in ("mkfs.ext4", "mount", "fsfreeze"):
        if not shutil.which(tool):
            return "needs %s (e2fsprogs, util-linux)" % tool
    try:
        own_mounts()
        disk = Disk(os.path.join(folder, "disk"), os.path.join(folder, "image"))
        disk.hang()
        disk.close()
    except harness.Failure as e:
        return "no disk can be mounted here: %s" % e
    return None
