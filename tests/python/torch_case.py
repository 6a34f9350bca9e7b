"""Base class of the tests of weir.torch (test_torch*.py)."""
import threading
import unittest

import harness
import weights

harness.use_package()
import weir  # noqa: E402


@unittest.skipIf(harness.SANITIZE, "PyTorch is compiled without a sanitizer")
class Torch(harness.Test):
    def setUp(self):
        super().setUp()
        self.torch = weights.torch2(self)
        import weir.torch  # pylint: disable=redefined-outer-name
        self.exchange = weir.torch.Exchange
        self.torch.manual_seed(3)
        self.x, self.y = self.torch.randn(64, 8), self.torch.randn(64, 3)

    def net(self):
        """Returns a network whose values are the same in each call."""
        nn = self.torch.nn
        self.torch.manual_seed(4)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))

    def loss(self, net, items):
        out = net(self.x[items].to(next(net.parameters()).dtype)).float()
        return self.torch.nn.functional.mse_loss(out, self.y[items])

    def close(self, got, want, rtol=1e-5, atol=1e-6):
        """Checks that two state dicts are nearly equal."""
        self.assertEqual(got.keys(), want.keys())
        for name, values in want.items():
            self.torch.testing.assert_close(got[name], values, rtol=rtol, atol=atol, msg=name)

    def job(self, member, n=2, regions=0, **kwargs):
        """Runs a server, and member(i, settings) for each of n members (n in each region), each in
        a thread of its own. Returns their results, or raises the first error of a member."""
        total = n * max(1, regions)
        out, errors = [None] * total, []

        def run(i, cluster):
            try:
                out[i] = member(i, {"batch_size": 8, "seed": 1, **cluster.settings(i)})
            except BaseException as e:  # pylint: disable=broad-except
                errors.append(e)
        with weir.Cluster(n_workers=n, regions=regions, **kwargs) as cluster:
            threads = [threading.Thread(target=run, args=(i, cluster)) for i in range(total)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if errors:
                raise errors[0]
            cluster.wait(20 * harness.PATIENCE)
        return out

    def plain(self, net, rule, seen, loss=None, after=None, turn=None):
        """Trains by PyTorch alone: in each step by the mean of the members' gradients. seen: for
        each member its samples in each step. turn(i): called before the turn of member i.
        after(step): called after a step."""
        for step, items in enumerate(zip(*seen)):
            rule.zero_grad()
            for i, mine in enumerate(items):
                if turn:
                    turn(i)
                ((loss or self.loss)(net, mine) / len(items)).backward()
            rule.step()
            if after:
                after(step)
