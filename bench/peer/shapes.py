"""Shapes of the parameters of GPT-2, and the stand-in for training that all programs share. Needs
only the standard library."""

SIZES = {"124m": (12, 768, 50257, 1024), "16m": (4, 384, 20000, 512), "tiny": (2, 64, 512, 64)}


def shapes(size):
    """Returns [(name, shape)] of GPT-2 with the layers, width, vocabulary and context of `size`."""
    layers, width, vocabulary, context = SIZES[size]
    found = [("wte", (vocabulary, width)), ("wpe", (context, width))]
    for i in range(layers):
        at = "h%d." % i
        found += [(at + "ln1.w", (width,)), (at + "ln1.b", (width,)),
                  (at + "qkv.w", (width, 3 * width)), (at + "qkv.b", (3 * width,)),
                  (at + "out.w", (width, width)), (at + "out.b", (width,)),
                  (at + "ln2.w", (width,)), (at + "ln2.b", (width,)),
                  (at + "up.w", (width, 4 * width)), (at + "up.b", (4 * width,)),
                  (at + "down.w", (4 * width, width)), (at + "down.b", (width,))]
    return found + [("ln.w", (width,)), ("ln.b", (width,))]


def count(size):
    """Returns the number of parameters."""
    n = 0
    for _, shape in shapes(size):
        product = 1
        for dimension in shape:
            product *= dimension
        n += product
    return n


def change(client):
    """Returns the amount by which a client changes each parameter in a round. It is exact in bf16
    and fp16, so a mean of the clients' changes can be checked."""
    return (1 + client) / 64


def expected(first, n_rounds, n_clients):
    """Returns the value of a parameter after these rounds, if servers average the clients."""
    return first + n_rounds * sum(change(c) for c in range(n_clients)) / n_clients


def check(value, first, n_rounds, n_clients):
    """Raises if a parameter does not have the mean of all clients' changes. A format of 16 bits
    rounds each round."""
    right = expected(first, n_rounds, n_clients)
    if not abs(value - right) <= 0.02 * abs(right):
        raise SystemExit("the parameter is %r, not %r: this is no average" % (value, right))
