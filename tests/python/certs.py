"""Makes certificates and tokens for tests, with the scripts that users run."""
import os
import subprocess

import harness

MAKE = harness.source("scripts/make_certs")
CA_CONFIG = """
[ca]
default_ca = own
[own]
database = index
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
[extensions]
extendedKeyUsage = %s
subjectAltName = %s
"""


def openssl(*words, cwd=None):
    done = harness.run(["openssl", *words], cwd=cwd, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise harness.Failure("openssl %s: %s" % (" ".join(words), done.stdout))
    return done.stdout


class Certs:
    """A folder with a CA of its own."""

    def __init__(self, folder):
        self.folder = folder

    def make(self, role, name, *hosts, days=365):
        done = harness.run([MAKE, "--days=%d" % days, self.folder, role, name, *hosts])
        if done.returncode != 0:
            raise harness.Failure("make_certs: " + done.stdout)
        return self.flags(name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def flags(self, name, ca=None):
        return ["--tls_cert=" + self.path(name + ".pem"), "--tls_key=" + self.path(name + ".key"),
                "--tls_ca=" + (ca or self).path("ca.pem")]

    def make_special(self, name, names, usage="clientAuth", start="20200101000000Z",
                     end="20990101000000Z"):
        """Makes a certificate that make_certs cannot make: it has these names, this usage and these
        dates."""
        for path, text in (("config", CA_CONFIG % (usage, names)), ("index", "")):
            harness.write_file(self.path(path), text)
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", name + ".key", "-subj", "/CN=" + name, "-out", "request",
                cwd=self.folder)
        openssl("ca", "-batch", "-notext", "-config", "config", "-cert", "ca.pem", "-keyfile",
                "ca.key", "-extensions", "extensions", "-startdate", start, "-enddate", end,
                "-in", "request", "-out", name + ".pem", cwd=self.folder)
        return self.flags(name)


def for_job(folder, *hosts):
    """Returns a new CA with certificates for servers ("ps") on these hosts, and for workers."""
    own = Certs(folder)
    own.make("ps", "ps", *(hosts or ("localhost", harness.LOOPBACK)))
    own.make("worker", "worker")
    return own


def write_secret(path, text):
    """Replaces a file by a rename, as its owner does; no other user can read the new file."""
    with open(path + ".new", "w", encoding="utf-8",
              opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
        f.write(text)
    os.rename(path + ".new", path)
    return path
