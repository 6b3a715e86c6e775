#!/usr/bin/env python3
"""Are the products of training as fast as PyTorch's? Both in one run, on the same shapes and threads, in turns.

  bench/products.py build/bench/bench_products [--threads 2] [--type f32|bf16] [--rounds 3]

Prints GFLOP/s of each (the best of all rounds: a busy neighbour only ever slows one down) and their ratio; ends with 1 where
a ratio is below 1.
"""
import argparse
import subprocess
import sys
import time

import torch

SHAPES = [(1024, 960, 576), (1024, 576, 576), (1024, 3072, 576), (1024, 576, 1536), (1024, 4096, 576)]
KINDS = ["linear", "d_input", "d_weight"]


def best_seconds(run, budget=0.3):
    best, start = 1e9, time.perf_counter()
    while best == 1e9 or time.perf_counter() - start < budget:
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def torch_rates(dtype):
    rates = {}
    for T, N, C in SHAPES:
        x, w, y = torch.randn(T, C, dtype=dtype), torch.randn(N, C, dtype=dtype), torch.randn(T, N, dtype=dtype)
        runs = [lambda: torch.nn.functional.linear(x, w), lambda: y @ w, lambda: y.t() @ x]
        for kind, run in zip(KINDS, runs):
            rates[T, N, C, kind] = 2e-9 * T * N * C / best_seconds(run)
    return rates


def our_rates(program, threads, kind_of_number):
    out = subprocess.run([program, str(threads), kind_of_number, kind_of_number], check=True, capture_output=True, text=True)
    rates = {}
    for line in out.stdout.splitlines():
        T, N, C, *values = line.split()
        for kind, value in zip(KINDS, values):
            rates[int(T), int(N), int(C), kind] = float(value)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--type", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours, theirs = {}, {}
    for _ in range(options.rounds):
        for best, found in [(ours, our_rates(options.program, options.threads, options.type)),
                            (theirs, torch_rates(torch.float32 if options.type == "f32" else torch.bfloat16))]:
            for key, rate in found.items():
                best[key] = max(best.get(key, 0), rate)
    print(f"{'T':>5} {'N':>5} {'C':>5} {'':9} {'ours':>8} {'PyTorch':>8} {'ratio':>6}   GFLOP/s, {options.type}, {options.threads} threads")
    for (T, N, C, kind), rate in ours.items():
        other = theirs[T, N, C, kind]
        print(f"{T:5} {N:5} {C:5} {kind:9} {rate:8.1f} {other:8.1f} {rate / other:6.2f}")
    sys.exit(any(rate < theirs[key] for key, rate in ours.items()))


if __name__ == "__main__":
    main()
