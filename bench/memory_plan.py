#!/usr/bin/env python3
"""Peak memory of `slideway train` against its plan, SmolLM2-135M, full-parameter and LoRA, rows of full length.

    bench/memory_plan.py [--rows 1024]

The plan is what --dry-run prints; the peak is the kernel's count of resident memory for the whole process.
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def planned(text):
    totals = re.findall(r"^(?:device|pinned|host)\s+([\d.]+) (\w+)$", text, re.M)
    return sum(float(number) * UNITS[unit] for number, unit in totals)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1024)
    rows = parser.parse_args().rows
    worst = 0.0
    for name, more in {"full, clipping": [], "full, no clipping": ["max_grad_norm=0"],
                       "full, recomputing": ["activations=recompute"], "full, exact": ["compute=fp32"],
                       "lora": ["adapter=lora"]}.items():
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder, "rows.jsonl")
            data.write_text("".join(json.dumps({"text": f"{n} " + "ship and tide " * rows}) + "\n" for n in range(3)))
            command = [ROOT / "build/slideway", "train", f"base_model={MODEL}", f"datasets={data}",
                       f"output_dir={folder}/out", f"sequence_len={rows}", "max_steps=3", *more]
            plan = planned(subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True).stderr)
            # The children's count is a maximum over all of them: a fork of its own for each run.
            script = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL);"
                      "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
            peak = 1024 * int(subprocess.run(["python3", "-c", script, *command], capture_output=True, text=True,
                                             check=True).stdout)
        worst = max(worst, abs(peak / plan - 1))
        print(f"{name:20} planned {plan / 2**20:7.0f} MiB, peak {peak / 2**20:7.0f} MiB, {100 * (peak / plan - 1):+.1f} %")
    print(f"largest difference {100 * worst:.1f} %")


if __name__ == "__main__":
    main()
