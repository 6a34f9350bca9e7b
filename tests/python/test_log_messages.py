"""Each log line in a table of docs/ (log-messages.md, security.md, regions.md) is one that the
programs can write."""
# label: unit
import glob
import re

import harness

DOCS = glob.glob(harness.source("docs/**/*.md"), recursive=True)
ROOMS = ("base", "checkpoint", "cluster", "files", "http", "libweir", "member", "net", "ps",
         "worker", "ctl")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Consecutive literals, also with a macro such as PRId64 between them.
RUN = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*(?:PRI\w+\s*)?"(?:[^"\\\n]|\\.)*")*')
CONVERSION = re.compile(r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j)?[diouxXeEfgGcsp]?")
LEAST_LITERAL = 10  # characters; "%s: %s" fits every line and proves nothing


def formats():
    """Returns every format of the programs, with * for each argument."""
    out = {}
    for room in ROOMS:
        for path in glob.glob(harness.source(room, "**", "*.c"),
                              recursive=True):
            for m in RUN.finditer(harness.read_text(path).replace("TERM_FMT", '"%s"')):
                text = "".join(LITERAL.findall(m.group(0)))
                text = text.replace('\\"', '"').replace("%%", "\0")
                pattern = CONVERSION.sub("*", text).replace("\0", "%")
                if len(pattern.replace("*", "")) >= LEAST_LITERAL:
                    out[pattern] = path
    return out


def fit(a, b):
    """Returns whether a text fits both patterns, in which * stands for any text."""
    reach = {0}  # places in b that the beginning of a can reach
    def widen(places):
        todo = list(places)
        while todo:
            k = todo.pop()
            if k < len(b) and b[k] == "*" and k + 1 not in places:
                places.add(k + 1)
                todo.append(k + 1)
        return places
    reach = widen(reach)
    for c in a:
        if c == "*":
            reach = set(range(min(reach), len(b) + 1)) if reach else set()
        else:
            reach = widen({k if b[k] == "*" else k + 1 for k in reach
                           if k < len(b) and b[k] in ("*", c)})
        if not reach:
            return False
    return len(b) in reach


def documented_in(doc):
    out, inside = [], False
    with open(doc, encoding="utf-8") as f:
        for line in f:
            if not line.startswith("|"):
                inside = False
            elif re.match(r"\|\s*line\b", line):
                inside = True
            elif inside and not line.startswith("| ---"):
                first = line.split(" | ")[0]
                out += [span.replace("...", "*") for span in re.findall(r"`([^`]+)`", first)]
    return out


def documented():
    """Returns the lines in code spans of the first column of tables headed "line", each with * for
    ..."""
    out = []
    for doc in DOCS:
        out += documented_in(doc)
    return out


class LogMessages(harness.Test):
    def test_documented_lines_exist(self):
        known = formats()
        lines = documented()
        self.assertGreater(len(lines), 30)
        missing = [line for line in lines if not any(fit(line, f) for f in known)]
        self.assertEqual(missing, [], "documented, but no program writes it")

    def test_comparison_distinguishes_lines(self):
        """Proves that the comparison can fail."""
        self.assertTrue(fit("checkpoint at step 300 given up", "checkpoint at step * given up"))
        self.assertTrue(fit("* given up: ps:1 could not", "step * given up: ps:* could not"))
        self.assertFalse(fit("checkpoint at step 300 given up", "checkpoint at step * given away"))
        self.assertFalse(fit("checkpoint at step 300", "checkpoint at step * given up"))


harness.main(__name__)
