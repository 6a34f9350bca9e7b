"""A small GPT that learns to write, letter by letter, like the GNU GPL (Debian's base-files). It
uses PyTorch alone, in one process. char_gpt_weir.py trains the same network on Weir's servers."""
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

PATH = "/usr/share/common-licenses/GPL-3"  # Debian's and Ubuntu's; --text=FILE: another text
PATH = ([a[7:] for a in sys.argv if a.startswith("--text=")] or [PATH])[-1]
if not os.path.exists(PATH):
    sys.exit("%s: there is no %s: give another text, --text=FILE" % (sys.argv[0], PATH))
with open(PATH, encoding="utf-8") as file:
    TEXT = file.read()
LETTERS = sorted(set(TEXT))
STEPS, BATCH, CONTEXT, WIDTH, HEADS, LAYERS, RATE = 200, 16, 64, 64, 4, 2, 3e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (part.view(n, t, HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS), bias=False)
        self.head.weight = self.letter.weight  # one parameter that two layers use
        for table in (self.letter, self.place):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, x):
        x = self.letter(x) + self.place(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def write(model, text, n=200):
    for _ in range(n):
        x = torch.tensor([[LETTERS.index(c) for c in text[-CONTEXT:]]])
        odds = model(x)[0, -1].softmax(0)
        text += LETTERS[torch.multinomial(odds, 1)]
    return text


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = torch.tensor([LETTERS.index(c) for c in TEXT])
    n = len(data) - CONTEXT  # number of windows in the text
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step in range(STEPS):
        windows = torch.randint(n, (BATCH,)).tolist()
        x = torch.stack([data[i:i + CONTEXT] for i in windows])
        y = torch.stack([data[i + 1:i + CONTEXT + 1] for i in windows])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step %d loss %.9g" % (step, loss.item()), flush=True)
    with torch.no_grad():
        print(write(model, "You may " if "You may " in TEXT else TEXT[:8]))


if __name__ == "__main__":
    main()
