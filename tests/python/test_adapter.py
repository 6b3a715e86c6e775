"""Adapters cross over both ways: what peft saves, slideway applies; what slideway saves, peft loads."""
import os
import pathlib
import subprocess

import numpy as np
import peft
import pytest
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLIDEWAY = pathlib.Path(os.environ.get("SLIDEWAY", ROOT / "build/slideway"))
SMOLLM2 = ROOT / ".cache/models/smollm2-hf"
GOLDEN = ROOT / "tests/golden"
FAMILIES = ["llama", "llama_tied", "qwen2", "qwen3", "mistral"]
TOKENS = 20
SURE = 0.002  # the least lead of a chosen token's logit: what rounding cannot turn
PROMPTS = ["The three laws of motion are", "Once upon a time, in a small village", "Water boils at"]

# How each adapter differs from peft's defaults.
ADAPTERS = {
    "plain": dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]),
    "all-linear, rank-stabilised": dict(r=4, lora_alpha=4, use_rslora=True, target_modules="all-linear"),
    "patterns": dict(r=4, lora_alpha=8, target_modules=["q_proj", "o_proj", "up_proj", "down_proj"],
                     rank_pattern={"layers.[0-9].self_attn.q_proj": 2, "down_proj": 6},
                     alpha_pattern={".*up_proj": 12}, exclude_modules=["layers.3.mlp.up_proj"],
                     layers_to_transform=list(range(0, 30, 2)) + [3]),
    "regular expression, BF16": dict(r=16, lora_alpha=16, target_modules=r".*layers\.(1|2\d)\.mlp\.(gate|up)_proj"),
}


def built_test(name):
    tests = os.environ.get("SLIDEWAY_TESTS")
    for folder in [tests] if tests else [ROOT / "build/tests", ROOT / "build/dev/tests"]:
        if (program := pathlib.Path(folder) / name).exists():
            return program
    pytest.skip(f"{name} is not built")


def logits_of(family, adapter):
    base = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / family, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, adapter)
    with torch.no_grad():
        return model(torch.arange(60).reshape(2, 30)).logits.numpy()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([built_test("test_lora"), "--gtest_filter=SaveAdapter.Writes*"], check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "SLIDEWAY_SAVED_ADAPTERS": str(folder)})
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_peft_loads_what_slideway_saves(saved, family, recwarn):
    ours = logits_of(family, saved / family)
    assert not [w for w in recwarn if "missing" in str(w.message) or "unexpected" in str(w.message)]
    assert np.array_equal(ours, logits_of(family, GOLDEN / family / "adapter"))


@pytest.mark.parametrize("family", FAMILIES)
def test_merges_as_peft_does(family, tmp_path):
    adapter = GOLDEN / family / "adapter"
    subprocess.run([SLIDEWAY, "merge", GOLDEN / family, adapter, tmp_path / "merged", "--dtype", "float32"], check=True)
    base = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / family, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, adapter).merge_and_unload().state_dict()
    ours = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], rtol=1e-6, atol=1e-6), name


@pytest.fixture(scope="module")
def rounded_base():
    if not SMOLLM2.exists():
        pytest.skip("needs SmolLM2 in .cache/models")
    model = transformers.AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return model


@pytest.mark.parametrize("name", ADAPTERS)
def test_slideway_answers_as_peft_does(rounded_base, tmp_path, name):
    torch.manual_seed(len(name))
    model = peft.get_peft_model(rounded_base, peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name]))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.normal_(0, 0.02)
            if "lora_" in key and "BF16" in name:
                parameter.copy_(parameter.to(torch.bfloat16))
    stored = model.to(torch.bfloat16) if "BF16" in name else model
    stored.save_pretrained(tmp_path)
    model.to(torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(SMOLLM2)
    try:
        for prompt in PROMPTS:
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
            out = model.generate(input_ids=ids, do_sample=False, max_new_tokens=TOKENS, output_logits=True,
                                 return_dict_in_generate=True, pad_token_id=0)
            lead = min(float(logits[0].topk(2).values.diff().abs()) for logits in out.logits)
            assert lead > SURE, f"transformers itself is undecided: {lead}"
            wanted = tokenizer.decode(out.sequences[0, ids.shape[1]:], skip_special_tokens=True)
            done = subprocess.run([SLIDEWAY, "generate", SMOLLM2, "--adapter", tmp_path, "--raw", "--temperature", "0",
                                   "--max-tokens", str(TOKENS), prompt], capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            assert done.stdout.rstrip("\n") == wanted.rstrip("\n")
    finally:
        model.unload()
