"""SmolLM2's greedy answers by build/slideway are those of transformers in FP32, on weights rounded to BF16 in both."""
import os
import pathlib
import subprocess

import pytest
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLIDEWAY = pathlib.Path(os.environ.get("SLIDEWAY", ROOT / "build/slideway"))
FOLDER = ROOT / ".cache/models/smollm2-hf"
GGUF = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS = 20
SURE = 0.002  # the least lead of a chosen token's logit: what rounding cannot turn

pytestmark = pytest.mark.skipif(not FOLDER.exists() or not GGUF.exists(), reason="needs SmolLM2 in .cache/models")

CHATS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Name three primary colors.",
    "Translate 'good morning' into Spanish.",
    "What is 7 times 8?",
]
TEXTS = [
    "The three laws of motion are",
    "Once upon a time, in a small village",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "List of fruits:\n1. Apple\n2.",
]


@pytest.fixture(scope="module")
def answers():
    """What transformers says to every prompt, all in one batch."""
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER, padding_side="left", pad_token="<|im_end|>")
    rows = [tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True,
                                          return_dict=False) for prompt in CHATS]
    rows += [tokenizer(prompt)["input_ids"] for prompt in TEXTS]
    batch = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
    out = model.generate(**batch, do_sample=False, max_new_tokens=TOKENS, output_logits=True,
                         return_dict_in_generate=True)
    chosen = out.sequences[:, batch["input_ids"].shape[1]:]
    leads = torch.stack(out.logits, 1).topk(2).values.diff(dim=-1).abs()[..., 0]  # [prompts, tokens]
    ended = (chosen == model.config.eos_token_id).cumsum(1).roll(1, 1)
    ended[:, 0] = 0  # the end token itself was chosen too
    assert leads[ended == 0].min() > SURE, f"transformers itself is undecided: {leads[ended == 0].min()}"
    texts = tokenizer.batch_decode(chosen, skip_special_tokens=True)
    return dict(zip(CHATS + TEXTS, texts))


def answer_of_slideway(path, *arguments):
    """Without the line ends that the terminal is given after it."""
    done = subprocess.run([SLIDEWAY, "generate", path, "--temperature", "0", "--max-tokens", str(TOKENS), *arguments],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


@pytest.mark.parametrize("prompt", CHATS)
def test_chat_answers_are_those_of_transformers(answers, prompt):
    assert answer_of_slideway(FOLDER, prompt) == answers[prompt].rstrip("\n")


@pytest.mark.parametrize("prompt", TEXTS)
def test_raw_continuations_are_those_of_transformers(answers, prompt):
    assert answer_of_slideway(GGUF, "--raw", prompt) == answers[prompt].rstrip("\n")
