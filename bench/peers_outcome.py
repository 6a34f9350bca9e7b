"""The pure parts of the kill matrix: when to kill, what a kill cost, and the table."""
import random
import statistics

AFTER = 3  # steps beyond the last one before a kill, after which training moves again


def schedule(seed, kind, role, n_kills, between):
    """Returns [(step, seconds)] for each kill: the number of steps, counted from the start or the
    end of the kill before, and the delay after that step. The same arguments lead to the
    same moments."""
    chance = random.Random("%d %s %s" % (seed, kind, role))
    return [(round(chance.uniform(0.25, 1) * between), chance.uniform(0, 0.1))
            for _ in range(n_kills)]


def usual(notes):
    """Returns the median time of a step over all ranks; without steps 0."""
    times = [t for rank in {n["rank"] for n in notes} for t in _times(notes, rank)]
    return statistics.median(times) if times else 0


def _times(notes, rank):
    mine = [n for n in notes if n["rank"] == rank]
    return [(b["at"] - a["at"]) / (b["n"] - a["n"]) for a, b in zip(mine, mine[1:])
            if b["n"] > a["n"]]


def most(notes):
    """Returns the number of steps that are made."""
    return max((n["n"] for n in notes), default=-1)


def made_again(before, after):
    """Returns how many steps of one rank were made again. before, after: its notes before and after
    the kill. A larger stride than before the kill is no work of the rank: it received the state."""
    last = most(before)
    strides = [b["n"] - a["n"] for a, b in zip(before, before[1:])]
    stride = max([s for s in strides if s > 0], default=1)
    return sum(min(b["n"], last) - a["n"] for a, b in zip(after, after[1:])
               if a["n"] < min(b["n"], last) and b["n"] - a["n"] <= stride)


def outcome(notes, killed, step_seconds):
    """Returns (lost steps, seconds of standstill) of a kill at the time `killed`; None: training
    does not move yet. Notes: {"n": number of steps made, "rank", "at": time}.

    Training moves when AFTER steps beyond the last one before the kill are made. The usual time of
    these steps is no standstill. Lost steps are those that a rank had made and made again."""
    before = [n for n in notes if n["at"] <= killed]
    after = [n for n in notes if n["at"] > killed]
    made = most(before)
    moved = next((n for n in after if n["n"] >= made + AFTER), None)
    if moved is None:
        return None
    after = after[:after.index(moved) + 1]
    lost = max((made_again([n for n in before if n["rank"] == rank],
                           [n for n in after if n["rank"] == rank])
                for rank in {n["rank"] for n in before}), default=0)
    seconds = moved["at"] - killed - (moved["n"] - made) * step_seconds
    return lost, max(0.0, seconds)


def together(notes, n_ranks):
    """Returns whether so many ranks have made steps, and one of them more than AFTER."""
    return len({n["rank"] for n in notes if n["n"] > 0}) >= n_ranks and most(notes) > AFTER


def span(values, form):
    """Returns the median, with the lowest and highest value."""
    if not values:
        return ""
    if min(values) == max(values):
        return form % values[0]
    return (form + " (" + form + " to " + form + ")") % (
        statistics.median(values), min(values), max(values))


def row(name, role, kills, digests, right):
    """Returns a line of the table. kills: [(lost, seconds)], or a text for a kill after which
    training did not move. digests: of the runs that ended, right: those of runs without a kill."""
    moved = [k for k in kills if not isinstance(k, str)]
    stuck = [k for k in kills if isinstance(k, str)]
    ends = "%d of %d" % (len(moved), len(kills))
    if stuck:
        ends += " (%s)" % "; ".join("%d: %s" % (stuck.count(s), s) for s in sorted(set(stuck)))
    return "| %s | %s | %s | %s | %s | %s |" % (
        name, role, ends, span([k[0] for k in moved], "%d"), span([k[1] for k in moved], "%.1f"),
        same(digests, right))


def same(digests, right):
    """Returns whether runs with kills end with the bits of a run without kills."""
    if len(set(right)) > 1:
        return "no: nor do two runs without kills"
    if not digests or not right:
        return "no run ended"
    n = sum(d == right[0] for d in digests)
    return "yes" if n == len(digests) else "no" if n == 0 else "%d of %d runs" % (n, len(digests))


HEAD = ("| system | killed | training moved again | steps lost | seconds until it moved | "
        "same bits |\n| --- | --- | --- | --- | --- | --- |")
