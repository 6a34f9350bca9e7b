"""What workers recorded of their samples (--record_samples): was each one read once (I6)?"""


def read(paths):
    """[(generation, step, position, n)], each once: a step that was repeated reads the same."""
    rows = set()
    for path in paths:
        with open(path, encoding="ascii") as f:
            rows.update(tuple(int(word) for word in line.split()) for line in f)
    return rows


def last(rows):
    """Of each step, its rows in the last generation that took it."""
    generation = {}
    for g, step, _, _ in rows:
        generation[step] = max(g, generation.get(step, 0))
    return {r for r in rows if r[0] == generation[r[1]]}


def wrong(paths, n_steps, first=0):
    """What is not as it should be: all steps there, their positions without gap or overlap."""
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
