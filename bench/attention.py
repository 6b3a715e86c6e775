#!/usr/bin/env python3
"""Are attention and its gradient as fast as PyTorch's scaled_dot_product_attention? Both in one run, in turns.

  bench/attention.py build/bench/bench_attention [--threads 2] [--type f32|bf16] [--rounds 3]

One causal sequence at SmolLM2-135M's heads. Prints milliseconds (the best of all rounds) and PyTorch's over ours; ends with 1
where that is below 1.
"""
import argparse
import subprocess
import sys
import time

import torch


def best_ms(run, budget=0.5):
    best, start = 1e9, time.perf_counter()
    while best == 1e9 or time.perf_counter() - start < budget:
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return 1e3 * best


def torch_times(T, dtype):
    q, k, v = (torch.randn(1, heads, T, 64, dtype=dtype, requires_grad=True) for heads in (9, 3, 3))

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    with torch.no_grad():
        forward_ms = best_ms(forward)
    out = forward()
    d_out = torch.randn_like(out)
    return forward_ms, best_ms(lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--type", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dtype = torch.float32 if options.type == "f32" else torch.bfloat16
    ours, theirs = {}, {}
    for _ in range(options.rounds):
        out = subprocess.run([options.program, str(options.threads), options.type], check=True, capture_output=True, text=True)
        for line in out.stdout.splitlines():
            T, *times = line.split()
            for best, found in [(ours, [float(t) for t in times]), (theirs, torch_times(int(T), dtype))]:
                best[int(T)] = [min(a, b) for a, b in zip(best.get(int(T), [1e9, 1e9]), found)]
    print(f"{'T':>5} {'':8} {'ours':>9} {'PyTorch':>9} {'ratio':>6}   ms, {options.type}, {options.threads} threads")
    ratios = []
    for T in ours:
        for kind, mine, other in zip(["forward", "backward"], ours[T], theirs[T]):
            ratios.append(other / mine)
            print(f"{T:5} {kind:8} {mine:9.2f} {other:9.2f} {other / mine:6.2f}")
    sys.exit(min(ratios) < 1)


if __name__ == "__main__":
    main()
