"""Builds the package for pip. The build leaves no file in this folder, which another user may own.
If WEIR_INSTALLED=FOLDER names an installation (cmake --install), the wheel contains its programs
and libraries, and works on machines like this one. scripts/make_wheel makes a wheel for other
machines."""
import glob
import os
import shutil
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

INSTALLED = os.environ.get("WEIR_INSTALLED")
PROGRAMS = ("weir-ps", "weir-worker", "weir-task", "weirctl")
more = {}
# Only a wheel that contains the programs has these commands: otherwise a command that searches for
# its program would find itself.
commands = ["%s = weir.programs:%s" % (name, name.replace("-", "_"))
            for name in PROGRAMS] if INSTALLED else []


def files():
    """Yields (from, to) of each file in the wheel. A symbolic link is replaced by its file."""
    libraries = glob.glob(INSTALLED + "/lib*/**/libweir.so.0", recursive=True)
    if len(libraries) != 1:
        raise SystemExit("WEIR_INSTALLED=%s: libweir.so.0 is there %d times below lib*; name the "
                         "folder that Weir is installed in (cmake --install BUILD --prefix FOLDER)"
                         % (INSTALLED, len(libraries)))
    yield libraries[0], "lib/libweir.so.0"
    for name in PROGRAMS:
        yield os.path.join(INSTALLED, "bin", name), "bin/" + name
    for loaded in glob.glob(os.path.dirname(libraries[0]) + "/weir/lib*"):
        if "cuda" not in os.path.basename(loaded):  # that needs gigabytes of NVIDIA's libraries
            yield loaded, "lib/weir/" + os.path.basename(loaded)
    for wanted in ("models/*.json", "examples/*", "scripts/get_mnist", "scripts/make_*"):
        for path in glob.glob(os.path.join(INSTALLED, "share/weir", wanted)):
            yield path, os.path.relpath(path, INSTALLED)


class Build(build_py):
    def run(self):
        super().run()
        for source, name in files():
            to = os.path.join(self.build_lib, "weir/installed", name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy2(source, to)


if INSTALLED:
    try:
        from setuptools.command.bdist_wheel import bdist_wheel
    except ImportError:  # before setuptools 70.1
        from wheel.bdist_wheel import bdist_wheel

    class Wheel(bdist_wheel):
        def get_tag(self):
            return ("py3", "none", super().get_tag()[2])  # for this kind of machine and any Python

    class Binary(Distribution):
        def has_ext_modules(self):
            return True
    more = {"cmdclass": {"build_py": Build, "bdist_wheel": Wheel}, "distclass": Binary}

with tempfile.TemporaryDirectory(prefix="weir-pip-") as folder:
    setup(entry_points={"console_scripts": commands},
          options={"egg_info": {"egg_base": folder},
                   "build": {"build_base": os.path.join(folder, "build")}}, **more)
