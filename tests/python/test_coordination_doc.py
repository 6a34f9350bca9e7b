"""docs/design/coordination.md names exactly the phases, events and actions of the three state
machines. All files that documents name exist."""
# label: unit
import os
import re
import unittest

import harness

DOC = harness.source("docs/design/coordination.md")
WORD = re.compile(r"\b[A-Z][A-Z_0-9]{2,}\b")


def x_list(header, name):
    """Returns the names in '#define NAME(X) X(...) ...'."""
    body = re.search(r"#define %s\(X\)((?:.*\\\n)*.*)" % name, harness.read_source(header)).group(1)
    return set(re.findall(r"\bX\((\w+)\)", body))


def enum(header, name, prefix):
    body = re.search(r"enum %s \{(.*?)\};" % name, harness.read_source(header), re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return set(re.findall(r"\b%s(\w+)" % prefix, body)) - {"N_KINDS"}


def table(section, head):
    """Returns the words in capitals of the first column of the section's table with that head."""
    part = harness.read_source(DOC).split("\n## " + section + "\n")[1].split("\n## ")[0]
    rows = re.search(r"^\| %s \|.*\n\| ---.*\n((?:\|.*\n?)*)" % head, part, re.M).group(1)
    return {w for row in rows.splitlines() for w in WORD.findall(row.split("|")[1])}


def sources():
    """Returns all source files, but no built ones."""
    found = set()
    for room in ("base", "bench", "checkpoint", "cluster", "ctl", "docs", "examples", "files",
                 "http", "kernels", "libweir", "member", "net", "packaging", "ps", "python",
                 "r", "scripts", "tests", "worker"):
        for folder, _, names in os.walk(harness.source(room)):
            found.update(os.path.join(folder, name) for name in names)
    return found


class Documents(unittest.TestCase):
    def test_files_named_by_documents_exist(self):
        there = sources()
        docs = [d for d in there if d.endswith(".md") and "/bench/" not in d]
        docs += [harness.source(d) for d in ("README.md", "CONTRIBUTING.md")]
        for doc in docs:
            for name in re.findall(r"`([\w./-]+\.(?:c|h|py|cu|proto))`", harness.read_source(doc)):
                self.assertTrue(any(path.endswith("/" + name) for path in there),
                                "%s: %s" % (doc, name))


class CoordinationDoc(unittest.TestCase):
    def test_tables_of_ps_0_match_header(self):
        header = "ps/coordinator/coordinator.h"
        section = "Events and actions of ps 0"
        self.assertEqual(table(section, "event"), x_list(header, "COORDINATOR_EVENTS"))
        self.assertEqual(table(section, "action"), x_list(header, "COORDINATOR_ACTIONS"))
        self.assertEqual(table("Phases of ps 0", "phase"),
                         enum("ps/coordinator/coordinator_state.h", "coordinator_phase", "PHASE_"))

    def test_tables_of_a_server_match_header(self):
        header = "ps/coordinator/follower.h"
        section = "A server's side"
        self.assertEqual(table(section, "event"), x_list(header, "FOLLOWER_EVENTS"))
        self.assertEqual(table(section, "action"), x_list(header, "FOLLOWER_ACTIONS"))

    def test_tables_of_a_worker_match_header(self):
        header = "net/exchange/session_event.h"
        section = "A worker's side"
        self.assertEqual(table(section, "event"), enum(header, "session_event_kind", "EVENT_"))
        self.assertEqual(table(section, "action"), enum(header, "session_action_kind", "ACTION_"))


harness.main(__name__)
