"""The memory of a client of libweir is at most twice the model, its window of gRPC included: the
change by its own local steps is computed in the array of the values and sent from there. First
values that the client received as an array are one more copy, and so are written gradients."""
# label: cluster
import array
import struct
import sys
import unittest

import harness

harness.use_package()
import weir  # noqa: E402

MB = 1 << 20
N_PARAMS = 16  # parameters of 4 MB
MODEL = N_PARAMS * 4 * MB
# The program's own arrays of 4 MB, frames, and gRPC's windows. Freed memory that the heap keeps is
# not counted: HEAP lets it return each block to the system.
OTHER = 48 * MB
HEAP = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}

# A client. VmHWM also counts the pages of the server's segment that it maps; these exist once, in
# the server.
CLIENT = """
import array, re, sys, weir

def memory(field):
    with open("/proc/self/status") as f:
        return int(re.search(field + r":\\s+(\\d+)", f.read()).group(1)) * 1024

def of_server():
    with open("/proc/self/smaps") as f:
        return 1024 * sum(map(int, re.findall(
            r" r--s .*memfd:weir-payloads.*\\n(?:\\w+:.*\\n)*?Rss: +(\\d+)", f.read())))

settings, (how, n_params) = weir.flags()
count, rounds = 1 << 20, 6
first = array.array("f", [7]) * count
room = array.array("f", [0]) * count
before, most = memory("VmHWM"), 0
own = how != "gradients"
if own:
    settings.update(local_steps=2, own_local_steps=True, outer_optimizer="sgd",
                    outer_learning_rate=1)
with weir.Member(train_steps=rounds * (2 if own else 1), batch_size=1, optimizer="sgd",
                 learning_rate=1, **settings) as m:
    params = [m.param("p%d" % i, (count,), first if how == "arrays" else lambda: first)
              for i in range(int(n_params))]
    for step in m:
        for p in params:
            if own:
                room[:] = array.array("f", [m.values(p)[0] + 1]) * count
                m.push_values(p, room, samples=1)
            else:
                m.gradient(p)[:] = first
                m.push(p, samples=1)
        for p in params:
            m.wait(p)
        most = max(most, memory("VmRSS") - of_server())
    shared = of_server()
    most = max(most, memory("VmHWM") - shared)
    values = {x for p in params for x in m.values(p)[::4099]}
print("memory", most - before, "and", shared, "values", sorted(values))
"""


@unittest.skipIf(harness.SANITIZE, "a sanitizer's memory is not the program's")
class Memory(harness.Test):
    def grown(self, how, *flags):
        """Returns the growth of a client's memory during a job, the bytes of the server's memory
        that it has mapped, and the last values."""
        job = self.job(n_workers=1)
        job.start_ps(0)
        client = self.start("client", [
            sys.executable, "-c", CLIENT, how, str(N_PARAMS), "--ps_hosts=" + job.ps_hosts[0],
            "--n_workers=1", "--task_index=0", *flags], env=harness.package_env(**HEAP))
        m = client.wait_line(r"memory (\d+) and (\d+) values \[(.*)\]", 60)
        client.wait()
        job.ps[0].wait()
        print("%s %s: %.1f MB, and %.1f MB of the server's, for a model of %.1f MB" % (
            how, " ".join(flags), int(m.group(1)) / MB, int(m.group(2)) / MB, MODEL / MB),
            flush=True)
        return int(m.group(1)), int(m.group(2)), m.group(3)

    def check(self, how, copies, values, *flags):
        grown, of_server, last = self.grown(how, "--shared_memory=off", *flags)
        self.assertEqual(last, values)
        self.assertEqual(of_server, 0)
        self.assertLess(grown, copies * MODEL + OTHER)
        grown, of_server, last = self.grown(how, *flags)
        self.assertEqual(last, values)
        self.assertGreater(of_server, MODEL / 2)  # the payloads passed by shared memory
        self.assertLess(grown, copies * MODEL + OTHER)

    def test_own_steps_need_values_once(self):
        self.assertLessEqual(MODEL + OTHER, 2 * MODEL)
        self.check("functions", 1, "13.0")

    def test_16_bits_need_values_once(self):
        """A change is encoded at its own place."""
        self.check("functions", 1, "13.0", "--wire_dtype=bf16,bf16")

    def test_first_values_of_array_are_one_more_copy(self):
        self.check("arrays", 2, "13.0")

    def test_gradients_are_one_more_copy(self):
        self.check("gradients", 2, "-35.0")


def floats(values):
    return array.array("f", values)


def rounded(x):
    """Returns x, rounded to bf16."""
    bits, = struct.unpack("<I", struct.pack("<f", x))
    bits = bits + 0x7fff + (bits >> 16 & 1) & 0xffff0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Bits(harness.Test):
    SIZES = {"large": 40000, "small": 10, "lacks": 7, "mean": 30000}

    def check(self, wire, rounding, **settings):
        """Checks the values after two rounds of one member, whose changes the servers apply."""
        job = self.job(n_workers=1)
        job.start_ps(0)
        want = {name: floats(i / 7 for i in range(n)) for name, n in self.SIZES.items()}
        with weir.Member(ps_hosts=job.ps_hosts[0], n_workers=1, task_index=0, train_steps=4,
                         local_steps=2, own_local_steps=True, outer_optimizer="sgd",
                         outer_learning_rate=1, batch_size=1, wire_dtype=wire, chunk_bytes=65536,
                         **settings) as m:
            params = {name: m.param(name, (n,), want[name], 0.0 if name == "mean" else None)
                      for name, n in self.SIZES.items()}
            for step in m:
                for name, p in params.items():
                    if name == "lacks":
                        m.push_values(p, None, samples=step.n_samples)
                        continue
                    made = floats(x * 0.9 + 0.01 for x in want[name])
                    m.push_values(p, made, samples=step.n_samples)
                    if name == "mean":  # statistics are contributed as floats
                        want[name] = made[:]
                    else:
                        change = floats(a - b for a, b in zip(want[name], made))
                        want[name] = floats(a - rounding(b) for a, b in zip(want[name], change))
                    made[:] = floats([0]) * len(made)  # the library has not borrowed it
                for p in params.values():
                    m.wait(p)
            for name, p in params.items():
                wrong = [(name, i, a, b) for i, (a, b) in enumerate(zip(m.values(p), want[name]))
                         if a != b]
                self.assertEqual(wrong[:3], [])
        job.ps[0].wait()

    def test_changes_in_fp32(self):
        for shared in ("off", "auto"):
            self.check("fp32", lambda x: x, shared_memory=shared)

    def test_changes_in_bf16(self):
        for shared in ("off", "auto"):
            self.check("bf16,fp32", rounded, shared_memory=shared)


harness.main(__name__)
