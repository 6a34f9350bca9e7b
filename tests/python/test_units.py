"""systemd reads the units of examples/systemd without a complaint."""
# label: unit
import os
import re
import shutil
import unittest

import harness

UNITS = harness.source("examples/systemd")


@unittest.skipUnless(shutil.which("systemd-analyze"), "needs systemd-analyze (systemd)")
class Units(harness.Test):
    def verify(self, *units):
        """Returns output and status of systemd-analyze for the units, with the programs of this
        build."""
        paths = []
        for name, text in units:
            text = re.sub("/usr/bin/weir-", harness.BIN + "/", text)
            paths.append(self.path(name))
            harness.write_file(paths[-1], text)
        done = harness.run(["systemd-analyze", "verify", "--man=no", *paths])
        return done.stdout, done.returncode

    def test_units_pass_systemd_analyze(self):
        units = []
        for role in ("ps", "worker"):
            with open(os.path.join(UNITS, "weir-%s@.service" % role), encoding="utf-8") as f:
                units.append(("weir-%s@1.service" % role, f.read()))
        self.assertEqual(self.verify(*units), ("", 0))
        said, _ = self.verify(("weir-ps@2.service", units[0][1].replace("Restart=", "Restrt=")))
        self.assertIn("Restrt", said)


harness.main(__name__)
