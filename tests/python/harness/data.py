"""The small synthetic data set of the tests."""
import os
import random
import struct


def pattern(rng, size):
    """Returns the picture of a class: a few bright rectangles on black."""
    rows = [bytearray(size) for _ in range(size)]
    for _ in range(4):
        h, w = rng.randint(size // 7, size // 3), rng.randint(size // 7, size // 3)
        y, x = rng.randint(2, size - h - 2), rng.randint(2, size - w - 2)
        for r in rows[y:y + h]:
            r[x:x + w] = b"\xc0" * w
    return b"".join(bytes(r) for r in rows)


def make_data(folder, n_train=2400, n_test=500, seed=7, size=28):
    """Writes the four IDX files: ten classes of noisy, shifted rectangles. Equal arguments make
    equal files. The data is easy on purpose: a linear model learns it within a hundred steps."""
    rng = random.Random(seed)
    cells = size * size
    classes = [int.from_bytes(pattern(rng, size), "big") for _ in range(10)]
    noise_mask = int.from_bytes(b"\x3f" * cells, "big")
    whole = (1 << 8 * cells) - 1
    for prefix, n in (("train", n_train), ("t10k", n_test)):
        labels = bytes(rng.randrange(10) for _ in range(n))
        images = []
        for label in labels:
            shift = 8 * (rng.randint(-1, 1) + size * rng.randint(-1, 1))
            picture = classes[label] << shift if shift >= 0 else classes[label] >> -shift
            noise = int.from_bytes(rng.randbytes(cells), "big") & noise_mask
            images.append((picture & whole ^ noise).to_bytes(cells, "big"))
        write_samples(os.path.join(folder, prefix), (n, size, size), b"".join(images), labels)


def npy(descr, shape, content):
    """Returns the bytes of an .npy file."""
    head = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" %
            (descr, tuple(shape))).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content


def write_samples(prefix, dims, samples, labels):
    write_idx("%s-images-idx%d-ubyte" % (prefix, len(dims)), dims, samples)
    write_idx(prefix + "-labels-idx1-ubyte", dims[:1], labels)


def write_idx(path, dims, payload):
    with open(path, "wb") as f:
        f.write(struct.pack(">HBB", 0, 8, len(dims)) + struct.pack(">%dI" % len(dims), *dims))
        f.write(payload)
