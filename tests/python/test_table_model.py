#!/usr/bin/python3
"""Models with sparse tables: flags that cannot be combined with them are refused in one line."""
# label: cluster
import json

import harness

MODEL = {"name": "wide", "classes": 1,
         "inputs": {"fields": {"type": "keys", "columns": ["city", "day"]},
                    "numbers": {"type": "dense", "shape": "auto"}},
         "layers": [{"type": "embedding_bag", "name": "bags", "input": "fields", "units": 2,
                     "max_rows": 1000},
                    {"type": "flatten", "name": "flat"},
                    {"type": "flatten", "name": "dense_numbers", "input": "numbers"},
                    {"type": "concat", "inputs": ["flat", "dense_numbers"]},
                    {"type": "dense", "name": "last", "units": 1},
                    {"type": "sigmoid_cross_entropy"}]}
SERVERS = ("--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2", "--task_index=0")


class TableModel(harness.Test):
    def write_set(self):
        with open(self.path("m.json"), "w", encoding="ascii") as f:
            json.dump(MODEL, f)
        rows = ["city,day,price,label"]
        for i in range(40):
            rows.append("%s,%s,%d.5,%d" % (("Oslo", "Rome", "Lima")[i % 3], ("Mon", "Sun")[i % 2],
                                           i % 7, i % 2))
        with open(self.path("train.csv"), "w", encoding="ascii") as f:
            f.write("\n".join(rows) + "\n")

    def refused(self, *flags):
        """Returns the only error of a worker that ends at once."""
        output = self.start_program(
            "worker", "--model=" + self.path("m.json"), "--train_data=" + self.path("train.csv"),
            "--batch_size=4", "--train_steps=2", "--progress=lines", *flags
        ).wait_output(60, 1)
        errors = [line for line in output.splitlines() if line.startswith("E ")]
        self.assertEqual(len(errors), 1, output)
        return errors[0]

    def test_flags_for_tables_refused(self):
        self.write_set()
        self.assertIn("tables need servers: start a server", self.refused())
        for flag, says in (
                ("--freeze=bag*", "'bag*' matches the layer 'bags', whose table cannot be frozen"),
                ("--augment=flip", "--augment changes pictures"),
                ("--placement=bags=gpu", "layer 'bags' cannot be placed on gpu"),
                ("--export=" + self.path("x.safetensors"), "--export"),
                ("--clip_norm=1", "tables cannot be combined with clip_norm"),
                ("--ema_decay=0.9", "tables cannot be combined with ema_decay"),
                ("--local_steps=2", "tables cannot be combined with local_steps"),
                ("--wire_dtype=int8", "tables cannot be combined with wire_dtype int8"),
                ("--weight_decay=0.1", "weight_decay"),
                ("--optimizer=rmsprop", "rmsprop"),
                ("--key_columns=city", "--key_columns")):
            with self.subTest(flag=flag):
                self.assertIn(says, self.refused(flag, *SERVERS))


if __name__ == "__main__":
    harness.main()
