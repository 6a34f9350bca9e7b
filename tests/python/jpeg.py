"""Makes baseline JPEG files from squares of 8 x 8 equal pixels. A reader decodes them to exactly
these values, because only the first coefficient of a square is not 0. Files are grey, or have
untransformed colours (Adobe's mark, no YCbCr)."""
import struct

SIDE = 8


def segment(kind, body):
    return struct.pack(">BBH", 0xff, kind, 2 + len(body)) + body


def tables():
    """Returns the quantization table and the two Huffman tables. Coefficients are in units of 8, so
    the first one is the pixels' value - 128. The difference of two first coefficients has 0 to 8
    bits; a code of 4 bits states how many. The code 0 of the second Huffman table ends a square."""
    return (segment(0xdb, b"\0" + b"\x08" * 64) +
            segment(0xc4, b"\0" + bytes([0, 0, 0, 9] + [0] * 12) + bytes(range(9))) +
            segment(0xc4, b"\x10" + bytes([1] + [0] * 15) + b"\0"))


def coded(values, n_channels):
    """Returns the coded squares. values: the squares row by row, all channels of a square
    together."""
    bits, before = "", [128] * n_channels
    for i, value in enumerate(values):
        step = value - before[i % n_channels]
        before[i % n_channels] = value
        size = abs(step).bit_length()
        bits += format(size, "04b")
        if size:
            bits += format(step if step > 0 else step + (1 << size) - 1, "0%db" % size)
        bits += "0"
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")


def encode(n_channels, rows, columns, values):
    """Returns a file of rows x columns squares; values: [rows][columns][n_channels], flat."""
    ids = range(1, n_channels + 1)
    frame = struct.pack(">BHHB", 8, rows * SIDE, columns * SIDE, n_channels)
    frame += b"".join(bytes([k, 0x11, 0]) for k in ids)
    scan = bytes([n_channels]) + b"".join(bytes([k, 0]) for k in ids) + bytes([0, 63, 0])
    mark = segment(0xee, b"Adobe" + bytes([0, 100, 0, 0, 0, 0, 0])) if n_channels == 3 else b""
    return (b"\xff\xd8" + mark + tables() + segment(0xc0, frame) + segment(0xda, scan) +
            coded(values, n_channels) + b"\xff\xd9")


def pixels(n_channels, rows, columns, values):
    """Returns the pixels of encode()'s picture as bytes, channels first."""
    out = bytearray()
    for c in range(n_channels):
        for r in range(rows):
            row = b"".join(bytes([values[(r * columns + k) * n_channels + c]]) * SIDE
                           for k in range(columns))
            out += row * SIDE
    return bytes(out)
