"""A member of a job with a table, and a plain program that computes the same rows alone.

    table_trainer.py [--SETTING=VALUE ...] [table.SETTING=VALUE ...] [[STEP=]GATE ...]

Each sample has three words of a small vocabulary; a step moves the rows of its words towards values
that depend on the sample. The program prints each step, and at the end a digest of all rows. When
it first makes a STEP (20 if it is left out), it waits until the file GATE can be read. All numbers
are float32, so the plain program rounds the result of each operation."""
import array
import hashlib
import math
import struct

import weir

N_SAMPLES, N_WORDS, DIM, BATCH, STEPS, BUCKETS = 400, 150, 4, 8, 40, 8
RATE, EPSILON, SEED = 0.125, 2.0 ** -20, 5
MASK = 2 ** 64 - 1
GATED = 20  # the step at which a gate without a step holds the program


def key_of(word):
    """Returns the key of a word: a hash of every second word, otherwise a small number."""
    return weir.key("word=%d" % word) if word % 2 else word


def words(sample):
    """Returns the words of a sample; often two of them are the same."""
    return [(sample * sample + 3 * i * (sample % 5)) % N_WORDS for i in range(3)]


def target(sample, element):
    return ((sample * 7 + element) % 13) / 8


def rounded(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def gradient(row, sample):
    """Returns the gradient of one word's row by one sample, as a part of the batch's mean."""
    return [rounded(rounded(row[d] - target(sample, d)) / BATCH) for d in range(DIM)]


def mix(x):
    """base/rng.h's rng_mix."""
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


def first_row(name, key):
    """Returns the initial values of a row, a normal distribution with a deviation of 1/2."""
    use_of_rows = 11  # base/rng.h's RNG_ROWS
    table = mix(mix(mix(SEED) ^ use_of_rows) ^ weir.key(name))
    stream, row = mix(table ^ mix(key)), []
    for d in range(DIM):
        bits = [mix(stream ^ mix(3 * d + k)) for k in range(3)]
        total = sum(b >> shift & 0xffff for b in bits for shift in (0, 16, 32, 48))
        row.append(rounded((total - 12 * 65535 // 2) * (0.5 * 2.0 ** -16)))
    return row


def half(row, key, version):
    """Rounds a row to bf16 at random (kernels/vector/row_round.h); without a version to the
    nearest, like initial values."""
    table = mix(mix(mix(SEED) ^ 11) ^ weir.key("words"))
    stream, bits = mix(table ^ mix(key)), array.array("I", array.array("f", row).tobytes())
    if version is not None:
        word = mix(mix(stream ^ mix(MASK ^ version)) ^ mix(0))
    for d, x in enumerate(bits):
        part = 0x7fff + (x >> 16 & 1) if version is None else word >> 16 * d & 0xffff
        bits[d] = x + part & 0xffff0000
    return array.array("f", bits.tobytes()).tolist()


def contribution(rows, samples):
    """Returns the gradients of a member's batch by key, added in the order of the samples."""
    sums = {}
    for sample in samples:
        for word in words(sample):
            key, g = key_of(word), gradient(rows[key_of(word)], sample)
            sums[key] = [rounded(a + b) for a, b in zip(sums[key], g)] if key in sums else g
    return sums


def plain(n_members, steps=STEPS, is_half=False):
    """Returns the digest of the rows after all steps of adagrad, computed without servers. is_half:
    servers keep the rows in bf16."""
    keys = [key_of(w) for w in range(N_WORDS)]
    rows, roots = {k: first_row("words", k) for k in keys}, {k: [0.0] * DIM for k in keys}
    if is_half:
        rows = {k: half(row, k, None) for k, row in rows.items()}
    with weir.Member(seed=SEED) as order:
        numbers = [order.sample(N_SAMPLES, i) for i in range(n_members * BATCH * steps)]
    for step in range(steps):
        sums = {}
        for rank in range(n_members):
            at = (step * n_members + rank) * BATCH
            for key, g in contribution(rows, numbers[at:at + BATCH]).items():
                weighted = [rounded(BATCH * x) for x in g]
                sums[key] = ([rounded(a + b) for a, b in zip(sums[key], weighted)]
                             if key in sums else weighted)
        scale = rounded(1 / (n_members * BATCH))
        for key, total in sums.items():
            for d in range(DIM):
                g = rounded(total[d] * scale)
                roots[key][d] = rounded(roots[key][d] + rounded(g * g))
                root = rounded(rounded(math.sqrt(roots[key][d])) + EPSILON)
                rows[key][d] = rounded(rows[key][d] - rounded(RATE * rounded(g / root)))
            if is_half:
                rows[key] = half(rows[key], key, step + 1)
    return digest([x for k in keys for x in rows[k]])


def digest(values):
    return hashlib.sha256(array.array("f", values).tobytes()).hexdigest()


def keys_of(samples):
    return array.array("Q", [key_of(w) for s in samples for w in words(s)])


def push(m, table, rows, samples):
    """Pushes a gradient for each word of each sample, so that equal keys are not added yet."""
    gradients = array.array("f")
    for i, sample in enumerate(samples):
        for j in range(3):
            at = (3 * i + j) * DIM
            gradients.extend(gradient(rows[at:at + DIM], sample))
    m.push_rows(table, keys_of(samples), gradients, samples=BATCH)


def train(m, settings, gates):
    bias = m.param("bias", (3,))
    table = m.table("words", DIM, optimizer="adagrad", learning_rate=RATE, epsilon=EPSILON,
                    init_scale=0.5, **settings)
    for step in m:
        samples = m.samples(step, N_SAMPLES)
        rows = m.lookup(table, keys_of(samples))
        if rows is not None:
            if step.step % 3:  # in some steps the next lookup has to send requests
                after = step.position + step.n_members * BATCH
                m.next_keys(table, keys_of(m.sample(N_SAMPLES, after + i) for i in range(BATCH)))
            push(m, table, rows.cast("B").cast("f"), samples)
            m.push(bias, array.array("f", [1, 2, samples[0]]), samples=BATCH)
        print("step", step.step, flush=True)
        if step.step in gates:
            with open(gates.pop(step.step), encoding="ascii") as f:
                f.read()
    rows = m.lookup(table, array.array("Q", [key_of(w) for w in range(N_WORDS)]))
    print("rows", digest(rows.cast("B").cast("f")))
    print(m.result)


def main():
    settings, words_given = weir.flags()
    gates = [w.rpartition("=") for w in words_given if not w.startswith("table.")]
    own = {"max_rows": 1000, "buckets": BUCKETS, "step_rows": 64}
    own.update((name, int(value) if value.isdigit() else value) for name, value in
               (word[6:].split("=") for word in words_given if word.startswith("table.")))
    with weir.Member(train_steps=STEPS, batch_size=BATCH, seed=SEED, **settings) as m:
        train(m, own, {int(step or GATED): path for step, _, path in gates})


if __name__ == "__main__":
    main()
