#!/usr/bin/python3
"""The notebooks of examples/notebooks. Their files contain figures and no error. The notebooks also
run, if this Python has the modules that execute notebooks (scripts/check_notebook)."""
# label: unit
import ast
import glob
import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest

import harness

NOTEBOOKS = sorted(glob.glob(harness.source("examples/notebooks/*.ipynb")))
FIGURES = {"own_loop.ipynb": 3, "shared_gpu.ipynb": 1}
CHECK = harness.source("scripts/check_notebook")


def text(cell):
    return "".join(cell["source"])


class Notebooks(unittest.TestCase):
    def test_notebooks_have_figures_and_no_error(self):
        self.assertTrue(NOTEBOOKS)
        for path in NOTEBOOKS:
            self.assertLess(os.path.getsize(path), 200_000)
            cells = harness.read_json(path)["cells"]
            outputs = [o for c in cells for o in c.get("outputs", [])]
            self.assertEqual([o for o in outputs if o["output_type"] == "error"
                              or o.get("name") == "stderr"], [])
            self.assertGreaterEqual(sum("image/png" in o.get("data", {}) for o in outputs),
                                    FIGURES[os.path.basename(path)])
            for cell in cells:
                if cell["cell_type"] == "code":
                    ast.parse(text(cell))
                    self.assertLessEqual(max(map(len, text(cell).splitlines())), 100)
                for link in re.findall(r"\]\((\.[^)#]*)", text(cell)):
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(path), link)), link)
            said = json.dumps([o.get("text") for o in outputs])
            self.assertNotRegex(said, r"/tmp|/home|/root")

    def test_notebooks_run(self):
        for name in ("nbclient", "ipykernel", "numpy", "matplotlib"):
            if importlib.util.find_spec(name) is None:
                self.skipTest("there is no %s; scripts/check_notebook fetches it" % name)
        subprocess.run([sys.executable, CHECK, "--python", sys.executable], check=True, env={
            **os.environ, "WEIR_LIBRARY": harness.LIBRARY, "WEIR_PROGRAMS": harness.BIN},
                       timeout=90 * harness.PATIENCE)


harness.main(__name__)
