"""Runs examples/python/char_gpt_weir.py, records the samples that it reads, and leaves the job on
SIGTERM:   gpt_samples.py FILE AHEAD FLAGS...
AHEAD: task indices, separated by commas, of the workers that use weir.torch.Loader; its process
reads samples ahead of their step.
FILE receives lines "generation step position n item..." at its end, so all members may share it."""
import json
import os
import signal
import sys

import weir.torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../examples/python"))
import char_gpt_weir  # noqa: E402


class Recorded(weir.torch.Exchange):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        signal.signal(signal.SIGTERM, lambda *_: self.leave_soon(0))

    def samples(self, n):
        return self.record(super().samples(n))

    def record(self, found):
        s = self.step
        line = " ".join(map(str, [s.generation, s.step, s.position, s.n_samples, *found]))
        os.write(FILE, (line + "\n").encode())  # whole lines, by O_APPEND
        return found


class Ahead(Recorded):
    loader = read = None

    def __iter__(self):
        if self.loader:  # the loader requests the steps itself
            return self
        self.loader = weir.torch.Loader(
            self, range(len(char_gpt_weir.TEXT) - char_gpt_weir.CONTEXT), num_workers=1)
        return self.by_loader()

    def by_loader(self):
        for items in self.loader:
            self.read = items.tolist()
            yield self.step
        print("given up %d times" % self.loader.restarts)

    def samples(self, n):
        if self.read is None:  # the loader makes this call, to find the samples to read
            return super(Recorded, self).samples(n)
        found, self.read = self.read, None
        return self.record(found)


if __name__ == "__main__":
    FILE = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    me = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index")
    weir.torch.Exchange = Ahead if str(me) in sys.argv.pop(1).split(",") else Recorded
    char_gpt_weir.main()
