#!/usr/bin/python3
"""Reads a file that files/safetensors.c has written: by code of this test for the format's layout,
and by the format's own Python library, if it is installed (pip install safetensors numpy)."""
# label: cluster
import json
import os
import struct
import subprocess
import tempfile
import unittest

import harness

try:
    import numpy
    from safetensors import safe_open
except ImportError as missing:
    safe_open, why = None, str(missing)

SOURCE = os.environ.get("WEIR_SOURCE") or os.path.join(os.path.dirname(__file__), "../..")
BIN = os.environ.get("WEIR_BIN") or os.path.join(SOURCE, "build/bin")
WRITER = os.path.join(BIN, "../tests/files_safetensors_test")
SHAPES = {"conv1/weights": [2, 1, 3, 4], "bn/moving_mean": [4], "scale": [], "keys": [3],
          "halves": [3, 1]}
KEYS = [-7, 0, 2**63 - 1]  # the only tensor of whole numbers
HALVES = [0x3f80, 0xc020, 0]  # the only tensor of bf16: 1, -2.5, 0
METADATA = {"model": "lenet5", "quote": "a \"b\" \\ \n c"}


class Safetensors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir_st_")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "sample.safetensors")
        subprocess.run([WRITER, "--write", self.path], check=True, timeout=60)

    def check_metadata(self, metadata):
        sums = {key: metadata.pop(key) for key in list(metadata) if key.startswith("crc32c ")}
        self.assertEqual(metadata, METADATA)
        self.assertEqual(set(sums), {"crc32c " + name for name in SHAPES})
        for value in sums.values():
            self.assertRegex(value, "^[0-9a-f]{8}$")

    def test_layout_is_valid(self):
        data = harness.read_bytes(self.path)
        length, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + length])
        self.assertEqual(length % 8, 0)
        self.check_metadata(header.pop("__metadata__"))
        self.assertEqual({n: e["shape"] for n, e in header.items()}, SHAPES)
        at = 0
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            self.assertEqual(begin, at)
            at = end
            content = data[8 + length:][begin:end]
            if name == "keys":
                self.assertEqual(entry["dtype"], "I64")
                self.assertEqual(list(struct.unpack("<3q", content)), KEYS)
                continue
            if name == "halves":
                self.assertEqual(entry["dtype"], "BF16")
                self.assertEqual(list(struct.unpack("<3H", content)), HALVES)
                continue
            self.assertEqual(entry["dtype"], "F32")
            values = struct.unpack("<%df" % ((end - begin) // 4), content)
            self.assertEqual(list(values), [(begin // 4 + i) * 0.5 - 3 for i in range(len(values))])
        self.assertEqual(len(data), 8 + length + at)

    def test_library_reads_file(self):
        if safe_open is None:
            self.skipTest("the format's own library is not installed: " + why)
        at = 0
        with safe_open(self.path, framework="numpy") as f:
            self.check_metadata(f.metadata())
            self.assertEqual(set(f.keys()), set(SHAPES))
            for name, shape in SHAPES.items():
                if name == "halves":  # numpy has no bf16
                    tensor = f.get_slice(name)
                    self.assertEqual((tensor.get_shape(), tensor.get_dtype()), (shape, "BF16"))
                    continue
                tensor = f.get_tensor(name)
                self.assertEqual(list(tensor.shape), shape)
                if name == "keys":
                    self.assertEqual(tensor.dtype, numpy.int64)
                    self.assertEqual(tensor.tolist(), KEYS)
                    continue
                self.assertEqual(tensor.dtype, numpy.float32)
                want = (numpy.arange(at, at + tensor.size) * 0.5 - 3).reshape(shape)
                self.assertTrue((tensor == want).all())
                at += tensor.size


harness.main(__name__)
