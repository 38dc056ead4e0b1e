"""The learning plane on a GPU: the rounds of learning_plane.py and own_pace.py, there and on the CPU, and their ratios.

Then rounds and steps of 1 to 100 runs side by side, whose cost should hardly grow on a GPU.

Float32 without TF32, unless --tf32. Two CPU threads for the CPU's share; the clock is read after the device has caught
up. ``--device cpu`` rehearses all of it where there is no GPU. Run: python benchmarks/gpu.py [--tf32] [--device cpu]
"""

from __future__ import annotations

import argparse
import sys

import torch
from learning_plane import CLIENTS, MODELS, Problem, Program, milliseconds, synchronous
from own_pace import Program as AsynchronousProgram, compare

from vflsim.simulation.collector import patient_collector
from vflsim.vocabulary.execution_options import Execution

THREADS = 2
TOGETHER = 1, 5, 20, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tf32", action="store_true", help="let matrix products round their factors to TF32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a rehearsal without a GPU")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--rounds", type=int, help="rounds of a block, and steps of one client")
    parser.add_argument("--together", type=int, nargs="+", default=TOGETHER, help="runs side by side")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU: --device cpu rehearses this benchmark")
    name = torch.cuda.get_device_name() if options.device == "cuda" else "a rehearsal on the CPU"
    print(f"{name}, PyTorch {torch.__version__}, {'TF32' if options.tf32 else 'float32'}")
    with Execution(device=options.device, threads=THREADS, tf32=options.tf32).settings(), patient_collector():
        for model in MODELS:
            for clients in options.clients:
                cpu, device = (synchronous(model, clients, each, options.rounds) for each in ("cpu", options.device))
                ratios = " and ".join(f"{cpu[way] / device[way]:.2f}" for way in "be")
                print(f"  the CPU's round takes {ratios} of the GPU's, by operations and as a program")
            compare(model, 100, options.rounds or 300, options.device)
        for runs in options.together:
            side_by_side(runs, options.rounds or 100, options.device)


def side_by_side(runs: int, rounds: int, device: str) -> None:
    """A synchronous round of 28 linear clients, and a step of one among 100, of so many runs side by side.

    Few rows, so that the tables of a hundred runs fit into the memory of a GPU: 20 GB, not 154.
    """
    few, many = Problem(28, device, Problem.FEW), Problem(100, device, Problem.FEW)
    lockstep, steps = Program(few, "linear", rounds, runs), AsynchronousProgram(many, "linear", rounds, runs)
    found = milliseconds({"round": lockstep.run, "step": steps.run}, rounds)
    print(f"{runs:4} runs side by side: a round of all {found['round']:7.3f} ms, a step of all {found['step']:7.3f} ms")


if __name__ == "__main__":
    main()
