"""Adapters of every kind that peft makes, random in all that may vary: served side by side, their logits are peft's."""
import os
import pathlib
import subprocess
import sys

import numpy as np
import peft
import pytest
import torch
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import make_goldens  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = ["llama", "qwen2", "qwen3", "mistral"]  # qwen2 has biases and a tied head
LINEAR = make_goldens.LINEAR
KINDS = ["plain", "rslora", "dora", "bias all", "bias lora_only", "patterns", "embedding", "head", "dora at both ends",
         "saved whole", "tokens", "everything", "regular expression", "all-linear", "layers", "lora_bias"]
CLOSE = 1e-4


def tool():
    tests = os.environ.get("SLIDEWAY_TESTS")
    for folder in [tests] if tests else [ROOT / "build/tests", ROOT / "build/dev/tests"]:
        if (program := pathlib.Path(folder) / "adapter_logits_tool").exists():
            return program
    pytest.skip("adapter_logits_tool is not built")


def choose(kind, family, random):
    """What peft.LoraConfig is told."""
    names = list(random.choice(LINEAR, random.randint(1, 8), replace=False))
    rank = int(random.choice([1, 2, 3, 5, 8, 16, 33, 64, 128]))
    config = dict(r=rank, lora_alpha=int(random.randint(1, 2 * rank + 2)), target_modules=names)
    biased = ["q_proj", "k_proj", "v_proj"] if family == "qwen2" else []
    return config | {
        "plain": {},
        "rslora": dict(use_rslora=True),
        "dora": dict(use_dora=True),
        "bias all": dict(bias="all", target_modules=["q_proj", "down_proj"]),
        "bias lora_only": dict(bias="lora_only", use_dora=bool(biased), target_modules=["k_proj", "up_proj"]),
        "patterns": dict(target_modules=LINEAR, rank_pattern={"q_proj": 7, r"1\.mlp\.up_proj": 128},
                         alpha_pattern={"o_proj": 3}, use_rslora=True, exclude_modules=["layers.1.mlp.down_proj"]),
        "embedding": dict(target_modules=names + ["embed_tokens"]),
        "head": dict(target_modules=names + ["lm_head"]),
        "dora at both ends": dict(target_modules=["embed_tokens", "lm_head", "v_proj"], use_dora=True, use_rslora=True),
        "saved whole": dict(modules_to_save=["embed_tokens", "lm_head"]),
        "tokens": dict(trainable_token_indices={"embed_tokens": [5, 9, 40, 77]}),
        "everything": dict(target_modules=LINEAR + ["lm_head"], use_dora=True, bias="all", use_rslora=True,
                           modules_to_save=["embed_tokens"], rank_pattern={"lm_head": 11}),
        "regular expression": dict(target_modules=r".*layers\.1\.(self_attn|mlp)\.[qu].*_proj"),
        "all-linear": dict(target_modules="all-linear", use_dora=True),
        "layers": dict(layers_to_transform=[1], layers_pattern="layers"),
        "lora_bias": dict(target_modules=biased, lora_bias=True) if biased else dict(
            target_modules=names, trainable_token_indices={"lm_head": [1, 50], "embed_tokens": [3]}),
    }[kind]


def make_adapter(family, kind, folder, random, type):
    model = make_goldens.load_model(family)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **choose(kind, family, random))
    model = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            noise = torch.tensor(random.standard_normal(tuple(parameter.shape)), dtype=torch.float32)
            if any(part in name for part in ("magnitude", "bias", "tokens", "to_save")):
                values = parameter + 0.1 * noise
            else:
                values = 0.1 * noise / config.r ** 0.25
            parameter.copy_(values.to(type))
    if type != torch.float32:
        for name, parameter in model.named_parameters():
            if "lora_" in name and "magnitude" not in name:
                parameter.data = parameter.data.to(type)
    model.save_pretrained(folder)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.float()
    return model.eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_of_every_kind_give_pefts_logits(family, tmp_path):
    random, lines, models = make_goldens.random_of(family + " parity"), [], []
    for n, kind in enumerate(KINDS):
        type = [torch.float32, torch.bfloat16, torch.float16][n % 3]
        models.append(make_adapter(family, kind, tmp_path / str(n), random, type))
        ids = random.randint(0, 128, random.randint(8, 30))
        ids[2:7] = [5, 9, 77, 3, 50]
        lines.append(ids)
    text = "".join(f"{tmp_path / str(n)} {' '.join(map(str, ids))}\n" for n, ids in enumerate(lines))
    base_ids = " ".join(map(str, lines[0]))
    done = subprocess.run([tool(), make_goldens.ROOT / family, tmp_path / "out.safetensors"],
                          input=text + f"- {base_ids}\n", text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    ours = load_file(tmp_path / "out.safetensors")
    models.append(make_goldens.load_model(family).eval())
    with torch.no_grad():
        plain = [models[-1](torch.tensor(ids)[None]).logits[0, -1].numpy() for ids in lines]
    far = {}
    for n, (model, ids) in enumerate(zip(models, lines + [lines[0]])):
        found = ours[str(n)]
        whole = np.concatenate([ids, found.argmax(1)[:-1]])
        with torch.no_grad():
            wanted = model(torch.tensor(whole)[None]).logits[0, -len(found):].numpy()
        distance = np.abs(found - wanted).max() / np.abs(wanted).max()
        if not distance < CLOSE:
            far[(KINDS + ["base"])[n]] = distance
        change = np.abs(found[0] - plain[n]).max() / np.abs(plain[n]).max() if n < len(KINDS) else 1
        assert change > 10 * CLOSE, f"{KINDS[n]}: the adapter hardly changes what the base gives"
    assert not far
