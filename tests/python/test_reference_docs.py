#!/usr/bin/python3
"""docs/reference describes all functions and codes of weir.h, all functions and settings of
weir_tables.h, and all calls and kinds of pieces of the wire protocol."""
# label: unit
import re
import unittest

import harness


def named(page, table):
    """Returns the words in code spans of the first column of the page's table with that head."""
    rows = re.search(r"^\| %s \|.*\n\| ---.*\n((?:\|.*\n)*)" % table, harness.read_source(page),
                     re.M).group(1)
    return {w for row in rows.splitlines() for w in re.findall(r"`(\w+)`", row.split("|")[1])}


class ReferenceDocs(unittest.TestCase):
    def test_page_of_weir_h_is_complete(self):
        header = re.sub(r"/\*.*?\*/", "", harness.read_source("libweir/weir.h"), flags=re.S)
        functions = set(re.findall(r"\b(weir_\w+)\(", header))
        self.assertGreater(len(functions), 20)
        self.assertEqual(named("docs/reference/weir-h.md", "function"), functions)
        body = header.split("enum weir_code {")[1].split("}")[0]
        codes = set(re.findall(r"WEIR_\w+", body))
        self.assertGreater(len(codes), 10)
        self.assertEqual(named("docs/reference/weir-h.md", "code"), codes)

    def test_page_of_weir_tables_h_is_complete(self):
        page = "docs/reference/weir-tables-h.md"
        header = re.sub(r"/\*.*?\*/", "", harness.read_source("libweir/weir_tables.h"), flags=re.S)
        functions = set(re.findall(r"\b(weir_\w+)\(", header))
        self.assertGreater(len(functions), 5)
        self.assertEqual(named(page, "function"), functions)
        rows = re.search(r"struct flag rows\[\] = \{(.*?)\n\};",
                         harness.read_source("member/table_settings.c"), re.S).group(1)
        settings = set(re.findall(r'^ *(?:(?:INTEGER|NUMBER)\(|CHOICE\("|\{")(\w+)', rows, re.M))
        self.assertGreater(len(settings), 20)
        self.assertEqual(named(page, "setting"), settings)

    def test_page_of_wire_protocol_is_complete(self):
        page = "docs/reference/wire-protocol.md"
        protos = [harness.read_source("net/wire/%s.proto" % p)
                  for p in ("weir", "report", "region")]
        calls = set(re.findall(r"\brpc (\w+)\(", "".join(protos)))
        self.assertGreater(len(calls), 9)
        self.assertEqual(named(page, "call"), calls)
        piece = protos[0].split("message Piece {")[1]
        kinds = set(re.findall(r"^ +(\w+) = \d+;", piece.split("enum Kind {")[1].split("\n  }")[0],
                               re.M))
        self.assertEqual(named(page, "kind"), kinds - {"NONE"})


harness.main(__name__)
