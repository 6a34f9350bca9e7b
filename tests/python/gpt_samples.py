"""examples/python/char_gpt_weir.py, which writes down which samples it reads, and leaves in order
where it is told to end:   gpt_samples.py FILE FLAGS...
Lines "generation step position n item...", appended: all members may have the same file."""
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
        found, s = super().samples(n), self.step
        line = " ".join(map(str, [s.generation, s.step, s.position, s.n_samples, *found]))
        os.write(FILE, (line + "\n").encode())  # whole, by O_APPEND
        return found


FILE = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
weir.torch.Exchange = Recorded
char_gpt_weir.main()
