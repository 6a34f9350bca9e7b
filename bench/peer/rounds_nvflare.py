"""NVFlare: the recipe of FedAvg for PyTorch, in the environment POC, which starts a server and
clients as processes of this machine."""
import os
import time

import note
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import ExchangeFormat
from nvflare.recipe import PocEnv


def main():
    o = note.options()
    here = os.path.dirname(os.path.abspath(__file__))
    recipe = FedAvgRecipe(
        name="rounds", model={
            "class_path": "gpt_module.Parameters",
            "args": {"size": o["size"], "dtype": o["dtype"]}},
        min_clients=o["clients"], num_rounds=o["rounds"] + 1,
        train_script=os.path.join(here, "rounds_nvflare_client.py"),
        server_expected_format=ExchangeFormat.PYTORCH)
    run = recipe.execute(PocEnv(num_clients=o["clients"]))
    while True:  # the measuring program ends all processes
        print(run.get_status(), flush=True)
        time.sleep(10)


if __name__ == "__main__":
    main()
