"""The parameters of GPT-2 as a module of PyTorch, which computes nothing."""
import shapes
import torch


class Parameters(torch.nn.Module):
    def __init__(self, size, dtype):
        super().__init__()
        made = {name.replace(".", "_"): torch.nn.Parameter(torch.zeros(shape))
                for name, shape in shapes.shapes(size)}
        for name, p in made.items():
            self.register_parameter(name, p)
        if dtype == "bf16":
            self.to(torch.bfloat16)
