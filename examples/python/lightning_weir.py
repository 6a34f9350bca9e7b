"""A PyTorch Lightning module trained by Weir's servers (docs/guide/pytorch.md): one callback, and a
DataLoader whose samples the callback chooses. A job of two workers:
    weir-ps --ps_hosts=localhost:2222 &
    python3 lightning_weir.py --ps_hosts=localhost:2222 --n_workers=2 --task_index=0 &
    python3 lightning_weir.py --ps_hosts=localhost:2222 --n_workers=2 --task_index=1"""
import hashlib

import lightning
import torch
import weir
import weir.torch
from torch import nn

STEPS, BATCH = 100, 16


class Weir(lightning.Callback):
    """Makes the module's optimizer and scheduler those of a job of Weir. settings: those of
    weir.torch.Exchange. The Trainer must have one device, and no gradient_clip_val: clip_norm is a
    setting."""

    def __init__(self, **settings):
        self.settings, self.exchange = settings, None

    def on_train_start(self, trainer, pl_module):
        schedulers = [c.scheduler for c in trainer.lr_scheduler_configs]
        self.exchange = weir.torch.Exchange(pl_module, optimizer=trainer.optimizers[0],
                                            scheduler=schedulers[0] if schedulers else None,
                                            **self.settings)

    def on_train_end(self, trainer, pl_module):
        self.exchange.close()

    def on_exception(self, trainer, pl_module, exception):
        if self.exchange:
            self.exchange.__exit__(type(exception), exception, None)

    def loader(self, data, **settings):
        """Returns the DataLoader of the training data."""
        return torch.utils.data.DataLoader(data, batch_sampler=Samples(self, len(data)), **settings)


class Samples(torch.utils.data.Sampler):
    """The samples of each step. They are known when Lightning fetches a batch, in the same
    process."""

    def __init__(self, callback, n):
        self.callback, self.n = callback, n

    def __iter__(self):
        yield from weir.torch.Sampler(self.callback.exchange, self.n)

    def __len__(self):
        return self.callback.settings["train_steps"]


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch, number):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        print("step %d loss %.9g" % (self.global_step, loss.item()), flush=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def main():
    torch.manual_seed(1)
    x = torch.randn(512, 8)
    data = torch.utils.data.TensorDataset(x, x.sin().sum(1, keepdim=True))
    job = Weir(**{"train_steps": STEPS, "batch_size": BATCH, "seed": 1, **weir.flags()[0]})
    net = Net()
    trainer = lightning.Trainer(max_steps=STEPS, callbacks=[job], accelerator="cpu", devices=1,
                                logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(net, job.loader(data))
    weights = b"".join(bytes(t.flatten().view(torch.uint8).tolist())
                       for t in net.state_dict().values())
    print("SHA-256 of the weights:", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
