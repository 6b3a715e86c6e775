"""How fast is a text turned into ids? tokenize_tool against the tokenizers library, on one core, in one run.

    .cache/oracle/bin/python bench/tokenizer.py [build folder]

Two texts: Python's own sources (ordinary code and English) and the mixed text of the tests. MB/s of processor time, the
best of five (three of the library); both keep the word caches that earlier rounds filled. Loading is wall time, with the process's start.
"""
import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pathlib  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import sysconfig  # noqa: E402
import time  # noqa: E402

import tokenizers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/python"))
from tokenizer_text import mixed_text  # noqa: E402

TOOL = (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build") / "tests/tokenize_tool"
FOLDERS = ["models/smollm2-hf", "tokenizers/llama3.2", "tokenizers/deepseek"]


def sources(size=4_000_000):
    text = ""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_text(errors="replace")
        if len(text) > size:
            break
    return text


def ours(folder, text):
    return subprocess.run([TOOL, folder, "--time"], input=text.encode(), capture_output=True, check=True).stdout.decode().strip()


def theirs(folder, text):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    best = 1e9
    for _ in range(3):
        begin = time.process_time()
        tokenizer.encode(text)
        best = min(best, time.process_time() - begin)
    return f"{len(text.encode()) / 1e6 / best:.2f} MB/s"


def main():
    texts = {"sources": sources(), "mixed": mixed_text()}
    for name in FOLDERS:
        folder = ROOT / ".cache" / name
        if not folder.exists():
            print(f"{name}: not in the cache")
            continue
        begin = time.perf_counter()
        subprocess.run([TOOL, folder], input=b"", check=True, capture_output=True)
        print(f"{name}: loaded in {time.perf_counter() - begin:.2f} s")
        for kind, text in texts.items():
            print(f"  {kind:8} {len(text.encode()) / 1e6:.1f} MB: {ours(folder, text)}; tokenizers {theirs(folder, text)}")
    word = "ab" * 500_000
    print(f"a word of 1 MB: {ours(ROOT / '.cache' / FOLDERS[1], word)}")


main()
