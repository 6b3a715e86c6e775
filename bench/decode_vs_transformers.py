#!/usr/bin/env python3
"""Greedy decoding of SmolLM2-135M, one sequence: build/slideway (BF16 weights) against transformers (FP32), by turns.

    bench/decode_vs_transformers.py [--rounds 4] [--tokens 128] [--threads 2]

A rate is (tokens of the long answer - tokens of the short one) / (time of the long - time of the short), so that
loading and the prompt do not count. Each time is the least of all rounds: neighbours on the machine only slow down.
"""
import argparse
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / ".cache/models/smollm2-hf"
PROMPT = "Once upon a time, in a small village"
SHORT = 8


def seconds_of_slideway(tokens, threads):
    command = [os.environ.get("SLIDEWAY", ROOT / "build/slideway"), "generate", MODEL, "--raw", "--temperature", "0", "--max-tokens", str(tokens),
               "--threads", str(threads), PROMPT]
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


def seconds_of_transformers(model, ids, tokens):
    begin = time.perf_counter()
    out = model.generate(ids, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0)
    assert out.shape[1] == ids.shape[1] + tokens
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args()

    import torch
    import transformers
    torch.set_num_threads(chosen.threads)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    ids = transformers.AutoTokenizer.from_pretrained(MODEL)(PROMPT, return_tensors="pt")["input_ids"]

    sides = {"slideway": lambda tokens: seconds_of_slideway(tokens, chosen.threads),
             "transformers": lambda tokens: seconds_of_transformers(model, ids, tokens)}
    best = {}
    for round_ in range(chosen.rounds):
        rates = {}
        for name, seconds in sides.items():
            for tokens in (SHORT, chosen.tokens):
                best[name, tokens] = min(best.get((name, tokens), float("inf")), seconds(tokens))
            rates[name] = (chosen.tokens - SHORT) / (best[name, chosen.tokens] - best[name, SHORT])
        print(f"after round {round_ + 1}: slideway {rates['slideway']:.1f}, transformers {rates['transformers']:.1f} tokens/s, "
              f"ratio {rates['slideway'] / rates['transformers']:.2f}", flush=True)


if __name__ == "__main__":
    main()
