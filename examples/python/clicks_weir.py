"""clicks.py trained by Weir's servers, which hold the rows in a table (docs/guide/tables.md). It
needs no vocabulary. A job of two workers:
    scripts/make_data --clicks --out=clicks
    weir-ps --ps_hosts=localhost:2222 --checkpoint_dir=saved &
    python3 clicks_weir.py clicks --ps_hosts=localhost:2222 --n_workers=2 --task_index=0 &
    python3 clicks_weir.py clicks --ps_hosts=localhost:2222 --n_workers=2 --task_index=1"""
import hashlib

import torch
import weir
import weir.torch
from clicks import BATCH, DIM, EPSILON, RATE, STEPS, Net, evaluate, load
from torch.nn.functional import binary_cross_entropy_with_logits


def main():
    torch.manual_seed(1)
    settings, (folder,) = weir.flags()
    (keys, dense, labels), test = load(folder + "/train.safetensors"), load(
        folder + "/test.safetensors")
    model = Net(weir.torch.Embedding(2000000, DIM, name="keys", init="uniform", init_scale=0.05))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE, eps=EPSILON)
    settings = {"train_steps": STEPS, "batch_size": BATCH // 2, "seed": 1, **settings}
    exchange = weir.torch.Exchange(model, optimizer=optimizer, **settings)
    for step in exchange:
        items = exchange.samples(labels)
        loss = binary_cross_entropy_with_logits(model(keys[items], dense[items]), labels[items])
        optimizer.zero_grad()
        loss.backward()
        exchange.reads(model.rows, keys[exchange.next_samples(labels)])
        optimizer.step()
        print("step %d loss %.9g" % (step, loss.item()), flush=True)
        if step + 1 == step.train_steps:
            print("test AUC %.4f" % evaluate(model, *test))
    weights = b"".join(bytes(t.flatten().view(torch.uint8).tolist())
                       for t in model.state_dict().values())
    print("SHA-256 of the weights:", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
