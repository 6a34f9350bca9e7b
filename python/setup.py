"""pip's ordinary build, which leaves nothing in this folder: it may be another user's. With
WEIR_INSTALLED=FOLDER, where Weir is installed (cmake --install), the wheel carries its programs and
libraries, and is for machines like this one."""
import glob
import os
import shutil
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

INSTALLED = os.environ.get("WEIR_INSTALLED")
commands = {}


def files():
    """(from, to) of what is carried; what a name points to is taken in its place."""
    library, = glob.glob(INSTALLED + "/lib*/**/libweir.so.0", recursive=True)
    yield library, "lib/libweir.so.0"
    for name in ("weir-ps", "weir-worker", "weirctl"):
        yield os.path.join(INSTALLED, "bin", name), "bin/" + name
    for backend in glob.glob(os.path.dirname(library) + "/weir/libweir_cpu.so"):
        yield backend, "lib/weir/libweir_cpu.so"
    for model in glob.glob(INSTALLED + "/share/weir/models/*.json"):
        yield model, "share/weir/models/" + os.path.basename(model)


class Build(build_py):
    def run(self):
        super().run()
        for source, name in files():
            to = os.path.join(self.build_lib, "weir/installed", name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(source, to)


if INSTALLED:
    from wheel.bdist_wheel import bdist_wheel

    class Wheel(bdist_wheel):
        def finalize_options(self):
            super().finalize_options()
            self.root_is_pure = False  # of this machine's kind

        def get_tag(self):
            return ("py3", "none", super().get_tag()[2])  # but of any Python
    commands = {"build_py": Build, "bdist_wheel": Wheel}

with tempfile.TemporaryDirectory(prefix="weir-pip-") as folder:
    setup(cmdclass=commands, options={"egg_info": {"egg_base": folder},
                                      "build": {"build_base": os.path.join(folder, "build")}})
