#!/usr/bin/env python3
"""Full fine-tuning of SmolLM2-135M, 1,024 tokens a step: build/slideway against PyTorch, by turns on one machine.

    bench/train_vs_torch.py [--rounds 2] [--steps 4] [--rows 1024] [--threads 2]

A step is forward, backward, clipping and AdamW. Both compute in FP32 from FP32 weights; two more lines show what
slideway does where it may choose (BF16 products where the processor has them). Kept: every activation is kept. Redone:
slideway keeps the layers' inputs, PyTorch uses gradient checkpointing. The best step of all rounds counts.
Afterwards bench_layer_ops says where slideway's time goes, if it has been built.
"""
import argparse
import gc
import json
import os
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / ".cache/models/smollm2-hf"
TEXT = "A slideway is the track on which a ship is built and then launched into the sea, one step after another. "


def seconds_of_slideway(chosen, compute, activations):
    """The best step, from trainer_log.jsonl. Not the first: an update takes place in the step after its own."""
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        folder = pathlib.Path(folder)
        rows = [json.dumps({"text": f"{n} " + TEXT * (chosen.rows // 10)}) for n in range(chosen.steps)]
        (folder / "data.jsonl").write_text("\n".join(rows))
        words = dict(base_model=MODEL, datasets=f"[{folder}/data.jsonl]", output_dir=folder / "out", compute=compute,
                     activations=activations, sequence_len=chosen.rows, max_steps=chosen.steps, learning_rate=1e-5,
                     weight_decay=0.1, max_grad_norm=1.0, save_steps=0, save_dtype="bf16", threads=chosen.threads)
        done = subprocess.run([os.environ.get("SLIDEWAY", ROOT / "build/slideway"), "train"] + [f"{key}={value}" for key, value in words.items()],
                              capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        lines = [json.loads(line) for line in (folder / "out/trainer_log.jsonl").read_text().splitlines()]
    assert lines[-1]["tokens"] == chosen.steps * chosen.rows, lines[-1]
    return min(b["seconds"] - a["seconds"] for a, b in zip(lines, lines[1:]))


def seconds_of_torch(chosen, checkpointing):
    import torch
    import transformers
    torch.set_num_threads(chosen.threads)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).train()
    model.config.use_cache = False
    if checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1, fused=True)
    ids = torch.randint(0, model.config.vocab_size, (1, chosen.rows))
    best = float("inf")
    for _ in range(chosen.steps):
        begin = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        best = min(best, time.perf_counter() - begin)
    del model, optimizer
    gc.collect()
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args()

    sides = {
        ("fp32, kept", "slideway"): lambda: seconds_of_slideway(chosen, "fp32", "keep"),
        ("fp32, kept", "torch"): lambda: seconds_of_torch(chosen, False),
        ("fp32, redone", "slideway"): lambda: seconds_of_slideway(chosen, "fp32", "recompute"),
        ("fp32, redone", "torch"): lambda: seconds_of_torch(chosen, True),
        ("own choice, kept", "slideway"): lambda: seconds_of_slideway(chosen, "auto", "keep"),
        ("own choice, redone", "slideway"): lambda: seconds_of_slideway(chosen, "auto", "recompute"),
    }
    best = {}
    for round_ in range(chosen.rounds):
        for side, seconds in sides.items():
            best[side] = min(best.get(side, float("inf")), seconds())
            print(f"round {round_ + 1}  {side[0]:19} {side[1]:9} {chosen.rows / best[side]:7.1f} tokens/s so far", flush=True)
    print()
    for kind in dict.fromkeys(kind for kind, _ in sides):
        ours, theirs = best[kind, "slideway"], best["fp32, " + kind.split(", ")[1], "torch"]
        print(f"{kind:19} slideway {chosen.rows / ours:7.1f}, torch {chosen.rows / theirs:7.1f} tokens/s, "
              f"ratio {theirs / ours:.2f}")
    ops = ROOT / "build/bench/bench_layer_ops"
    if ops.exists():
        print(flush=True)
        subprocess.run([ops, "f32", str(chosen.rows), "5"], check=True)


if __name__ == "__main__":
    main()
