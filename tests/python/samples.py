"""Checks in the samples that workers recorded (--record_samples) that each was read once (I6)."""


def read(paths, items=False):
    """Returns the records, {(generation, step, position, n)}. A repeated step makes the same record
    again, which appears once. items: each record also has its samples, if the worker recorded
    them."""
    rows = set()
    for path in paths:
        with open(path, encoding="ascii") as f:
            rows.update(tuple(int(word) for word in line.split()[:None if items else 4])
                        for line in f)
    return rows


def last(rows):
    """Returns, for each step, the rows of the last generation that made it."""
    generation = {}
    for g, step, *_ in rows:
        generation[step] = max(g, generation.get(step, 0))
    return {r for r in rows if r[0] == generation[r[1]]}


def wrong(paths, n_steps, first=0):
    """Returns the faults: a step is missing, or its positions overlap or leave a gap."""
    rows = last(read(paths))
    steps = {r[1] for r in rows}
    out = ["step %d was not taken" % s for s in range(n_steps) if s not in steps]
    out += ["step %d is none of the job's" % s for s in sorted(steps) if not 0 <= s < n_steps]
    at = first
    for g, step, position, n in sorted(rows, key=lambda r: (r[2], r[1])):
        if position != at:
            out.append("generation %d, step %d: its samples begin at %d, those before end at %d" %
                       (g, step, position, at))
        at = max(at, position + n)
    return out[:10]


def wrong_items(paths, n):
    """Returns the faults in the recorded samples, if the data set has n. A complete pass must read
    each sample once, the incomplete last pass at most once."""
    passes = {}
    for _, _, position, _, *items in last(read(paths, items=True)):
        for i, item in enumerate(items, start=position):
            passes.setdefault(i // n, []).append(item)
    whole = range(max(passes))
    return ["pass %d: %d samples were read, %d different ones" % (p, len(r), len(set(r)))
            for p, r in sorted(passes.items())
            if len(set(r)) != len(r) or (p in whole and set(r) != set(range(n)))]


def wrong_batches(paths, n_batches, batch, n_workers):
    """Returns the faults of a job whose servers assign batches to workers (async, ssp, backup
    workers), and whose first chunk had n_batches contributions. A batch may be missing only if a
    worker had it when the job ended: at most one per worker. In one generation no two workers may
    read the same batch. The records of a worker that was restarted are the files NAME-LIFE."""
    readers, out = {}, []
    for path in paths:
        name = path.rsplit("-", 1)[0]
        for g, _, position, n in read([path]):
            if position % batch or n != batch:
                out.append("%d samples from %d on are none of the batches" % (n, position))
            readers.setdefault(position // batch, {}).setdefault(g, set()).add(name)
    out += ["batch %d was not read" % b for b in range(n_batches - n_workers) if b not in readers]
    out += ["batch %d was read by %d workers in one generation" % (b, len(names))
            for b in sorted(readers) for names in readers[b].values() if len(names) > 1]
    if not n_batches <= len(readers) <= max(readers) + 1 <= n_batches + n_workers:
        out.append("of %d batches %d were read, the last of them number %d" %
                   (n_batches, len(readers), max(readers)))
    return out[:10]
