"""The parameters of GPT-2 as a module of PyTorch, which computes nothing."""
import gpt_values
import torch


class Parameters(torch.nn.Module):
    def __init__(self, size, dtype):
        super().__init__()
        for name, values in gpt_values.arrays(size):
            self.register_parameter(name.replace(".", "_"),
                                    torch.nn.Parameter(torch.from_numpy(values)))
        if dtype == "bf16":
            self.to(torch.bfloat16)
