import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2]))  # for what all tests share
torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
