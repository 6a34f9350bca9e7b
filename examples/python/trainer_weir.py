"""Hugging Face's Trainer with Weir's servers (docs/guide/pytorch.md): one callback, and a subclass
whose samples the callback chooses. A job of two workers:
    weir-ps --ps_hosts=localhost:2222 &
    python3 trainer_weir.py --ps_hosts=localhost:2222 --n_workers=2 --task_index=0 &
    python3 trainer_weir.py --ps_hosts=localhost:2222 --n_workers=2 --task_index=1"""
import hashlib
import tempfile

import torch
import transformers
import weir
import weir.torch

STEPS, BATCH, CONTEXT = 60, 8, 32


class Weir(transformers.TrainerCallback):
    """Makes the Trainer's optimizer and scheduler those of a job of Weir. settings: those of
    weir.torch.Exchange; the number of steps, the batch size and the bound of the gradients' norm
    are those of TrainingArguments."""

    def __init__(self, **settings):
        self.settings, self.exchange = settings, None

    def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None,
                       **kwargs):
        if args.gradient_accumulation_steps != 1:
            raise ValueError("a batch of the exchange is a whole step: raise the batch size")
        if args.max_grad_norm:  # the servers clip the mean gradient
            self.settings["clip_norm"] = args.max_grad_norm
        self.exchange = weir.torch.Exchange(
            model, optimizer=getattr(optimizer, "optimizer", optimizer),
            scheduler=getattr(lr_scheduler, "scheduler", lr_scheduler),
            batch_size=args.per_device_train_batch_size, train_steps=args.max_steps,
            **self.settings)

    def on_train_end(self, args, state, control, **kwargs):
        self.exchange.close()


class Trainer(transformers.Trainer):
    """A Trainer of which each step reads the samples of the exchange's step. It reads no batch
    ahead, as Accelerate's loaders do."""

    def __init__(self, weir_job, **arguments):
        self.weir_job = weir_job
        super().__init__(callbacks=[weir_job], **arguments)

    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_dataset, batch_sampler=Samples(self),
                                           collate_fn=self.data_collator)


class Samples(torch.utils.data.Sampler):
    def __init__(self, trainer):
        self.trainer = trainer

    def __iter__(self):
        yield from weir.torch.Sampler(self.trainer.weir_job.exchange, self.trainer.train_dataset)

    def __len__(self):
        return self.trainer.args.max_steps


class Windows(torch.utils.data.Dataset):
    """Windows of a text of letters."""

    def __init__(self, n=256):
        letters = torch.arange(n + CONTEXT) * 7 % 31
        self.items = [letters[i:i + CONTEXT] for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return {"input_ids": self.items[i], "labels": self.items[i]}


class Print(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print("step %d loss %s" % (state.global_step, logs["loss"]), flush=True)


def main():
    torch.set_num_threads(1)
    settings = {"seed": 1, **weir.flags()[0]}
    job = Weir(**settings)
    args = transformers.TrainingArguments(
        tempfile.mkdtemp(), max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=3e-3,
        lr_scheduler_type="cosine", warmup_steps=6, weight_decay=0.1,
        max_grad_norm=float(settings.get("clip_norm", 0)), save_strategy="no",
        logging_steps=10, report_to=[], use_cpu=True, seed=1, disable_tqdm=True)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=31, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0,
        embd_pdrop=0, attn_pdrop=0))
    trainer = Trainer(job, model=model, args=args, train_dataset=Windows())
    trainer.add_callback(Print())
    trainer.train()
    weights = b"".join(bytes(t.detach().flatten().contiguous().view(torch.uint8).tolist())
                       for t in model.parameters())
    print("SHA-256 of the weights:", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
