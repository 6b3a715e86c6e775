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
def model():
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return model


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(FOLDER)


def answer_of_transformers(model, tokenizer, ids):
    out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=TOKENS, output_logits=True,
                         return_dict_in_generate=True, pad_token_id=0)
    lead = min(float(logits[0].topk(2).values.diff().abs()) for logits in out.logits)
    assert lead > SURE, f"transformers itself is undecided: {lead}"
    return tokenizer.decode(out.sequences[0, len(ids):], skip_special_tokens=True)


def answer_of_slideway(path, *arguments):
    done = subprocess.run([SLIDEWAY, "generate", path, "--temperature", "0", "--max-tokens", str(TOKENS), *arguments],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same(found, wanted):
    """Line ends at the end of what is printed are the terminal's."""
    assert found.rstrip("\n") == wanted.rstrip("\n")


@pytest.mark.parametrize("prompt", CHATS)
def test_chat_answers_are_those_of_transformers(model, tokenizer, prompt):
    ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True,
                                        return_dict=False)
    assert_same(answer_of_slideway(FOLDER, prompt), answer_of_transformers(model, tokenizer, ids))


@pytest.mark.parametrize("prompt", TEXTS)
def test_raw_continuations_are_those_of_transformers(model, tokenizer, prompt):
    ids = tokenizer(prompt)["input_ids"]
    assert_same(answer_of_slideway(GGUF, "--raw", prompt), answer_of_transformers(model, tokenizer, ids))
