#!/usr/bin/env python3
"""Makes tests/golden: tiny random models of each family, and what transformers and peft compute with them in FP32.

    tools/make_goldens.py            writes every family's folder anew
    tools/make_goldens.py qwen3      writes one

A folder holds a Hugging Face model, adapter/ (a PEFT adapter with A and B both random) and golden.safetensors:

    ids, targets [10, T] i32   the token rows of ten steps; targets are the next tokens, -1 where not trained
    starts [5] i32             rows [starts[n], starts[n + 1]) are sequence n: four micro-batches of one sequence,
                               or one of four. The loss is the sum over trained tokens divided by their number.
    logits [T, V], loss [1]    of step 0
    grad.NAME                  of step 0's loss, for every parameter
    losses, norms [10]         ten AdamW steps without clipping; clipped.losses, clipped.norms with MAX_NORM
    greedy [4, 12] i32         the continuation of each sequence of step 0
    lora.*                     the same with the adapter on a frozen base; lora.logits are those of the merged model
"""
import json
import pathlib
import sys
import zlib

import numpy as np
import peft
import torch
import transformers
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
STEPS, LENGTHS, CONTINUED = 10, (13, 9, 5, 16), 12
LEARNING_RATE, WEIGHT_DECAY, MAX_NORM = 1e-3, 0.1, 1.0
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# Small, and none like another: what a family has of its own is in one of them.
SHAPE = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=7)
FAMILIES = {
    "llama": (transformers.LlamaConfig(
        **SHAPE, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=32)),
        torch.float32, dict(r=4, lora_alpha=8, target_modules=LINEAR)),
    "llama_tied": (transformers.LlamaConfig(
        **{**SHAPE, "hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 40},
        rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        torch.bfloat16, dict(r=2, lora_alpha=6, target_modules=["q_proj", "v_proj"], use_rslora=True)),
    "qwen2": (transformers.Qwen2Config(
        **SHAPE, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        torch.bfloat16, dict(r=4, lora_alpha=4, target_modules=LINEAR, use_rslora=True)),
    "qwen3": (transformers.Qwen3Config(
        **SHAPE, head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        torch.bfloat16, dict(r=8, lora_alpha=8, target_modules=["gate_proj", "up_proj", "down_proj"])),
    "mistral": (transformers.MistralConfig(
        **SHAPE, sliding_window=6, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        torch.bfloat16, dict(r=3, lora_alpha=6, target_modules=["k_proj", "o_proj", "up_proj", "down_proj"])),
}


def random_of(family):
    return np.random.RandomState(zlib.crc32(family.encode()))


def fill(parameters, random):
    """Numbers that BF16 can hold, so that a model is the same in either type: norms near 1, all else of spread 0.15."""
    with torch.no_grad():
        for name, parameter in parameters:
            values = torch.tensor(random.standard_normal(tuple(parameter.shape)), dtype=torch.float32)
            values = 1 + 0.2 * values if "norm" in name else 0.15 * values
            parameter.copy_(values.to(torch.bfloat16))


def make_model(family):
    model = transformers.AutoModelForCausalLM.from_config(FAMILIES[family][0], attn_implementation="eager").float()
    fill(model.named_parameters(), random_of(family))
    return model


def add_adapter(model, family):
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **FAMILIES[family][2]))
    fill(((name, p) for name, p in model.named_parameters() if p.requires_grad), random_of(family + " adapter"))
    return model


def load_model(family):
    return transformers.AutoModelForCausalLM.from_pretrained(
        ROOT / family, dtype=torch.float32, attn_implementation="eager")


def load_adapter(model, family):
    return peft.PeftModel.from_pretrained(model, ROOT / family / "adapter", is_trainable=True)


def make_rows(family):
    """ids and targets [STEPS, T], starts [N + 1]. Mostly id' = 3 id + 7, so that there is something to learn. A first
    part of each sequence is not trained; in every other step almost nothing is, so that gradient norms differ."""
    random, starts = random_of(family + " rows"), np.concatenate([[0], np.cumsum(LENGTHS)])
    ids = random.randint(3, FAMILIES[family][0].vocab_size, (STEPS, starts[-1]))
    for t in range(1, starts[-1]):
        ids[:, t] = np.where(random.rand(STEPS) < 0.8, (3 * ids[:, t - 1] + 7) % 61 + 3, ids[:, t])
    targets = np.roll(ids, -1, axis=1)
    for n, (begin, end) in enumerate(zip(starts, starts[1:])):
        targets[:, end - 1] = -1
        targets[:, begin:begin + n] = -1
        targets[1::2, begin:end - 2] = -1
    return ids.astype(np.int32), targets.astype(np.int32), starts.astype(np.int32)


def logits_of(model, ids, starts):
    """[T, V], one sequence after another."""
    return torch.cat([model(input_ids=torch.tensor(ids[None, begin:end], dtype=torch.long), use_cache=False).logits[0]
                      for begin, end in zip(starts, starts[1:])])


def loss_of(model, ids, targets, starts):
    logits = logits_of(model, ids, starts)
    wanted = torch.tensor(targets, dtype=torch.long)
    return torch.nn.functional.cross_entropy(logits, wanted, ignore_index=-1, reduction="sum") / (wanted >= 0).sum()


def trained(model):
    """The trained parameters by the names that files give them."""
    return {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}


def train(model, rows, max_norm):
    """The losses and gradient norms of ten steps. Norms and biases do not decay."""
    ids, targets, starts = rows
    decayed = [p for name, p in trained(model).items() if "norm" not in name and not name.endswith("bias")]
    others = [p for name, p in trained(model).items() if "norm" in name or name.endswith("bias")]
    optimizer = torch.optim.AdamW([dict(params=decayed, weight_decay=WEIGHT_DECAY),
                                   dict(params=others, weight_decay=0.0)], lr=LEARNING_RATE)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, ids[step], targets[step], starts)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained(model).values(), max_norm or float("inf")).item())
        optimizer.step()
        losses.append(loss.item())
    return np.float32(losses), np.float32(norms)


@torch.no_grad()
def continue_greedily(model, ids, starts):
    rows = []
    for begin, end in zip(starts, starts[1:]):
        row = list(ids[begin:end])
        for _ in range(CONTINUED):
            logits = model(input_ids=torch.tensor([row], dtype=torch.long), use_cache=False).logits[0, -1]
            first, second = logits.topk(2).values.tolist()
            assert first - second > 2e-4, "too close to call: take another seed"
            row.append(int(logits.argmax()))
            assert row[-1] != model.config.eos_token_id, "it has ended: take another seed"
        rows.append(row[end - begin:])
    return np.int32(rows)


def results_of(make, rows):
    """What the model that make() gives computes. It is made anew for each run of training."""
    ids, targets, starts = rows
    model, out = make(), {}
    loss = loss_of(model, ids[0], targets[0], starts)
    loss.backward()
    with torch.no_grad():
        out["logits"] = logits_of(model, ids[0], starts).numpy()
    out["loss"] = np.float32([loss.item()])
    out["greedy"] = continue_greedily(model, ids[0], starts)
    for name, parameter in trained(model).items():
        out["grad." + name] = parameter.grad.numpy()
    out["losses"], out["norms"] = train(make(), rows, None)
    out["clipped.losses"], out["clipped.norms"] = train(make(), rows, MAX_NORM)
    assert abs(out["losses"] / out["clipped.losses"] - 1).max() > 5e-4, "clipping changes nothing here"
    return out


def goldens(family, make, adapt):
    """Everything in golden.safetensors. make() gives the model; adapt(model) adds its adapter."""
    ids, targets, starts = rows = make_rows(family)
    out = dict(ids=ids, targets=targets, starts=starts, **results_of(make, rows))
    lora = results_of(lambda: adapt(make()), rows)
    with torch.no_grad():
        merged = logits_of(adapt(make()).merge_and_unload(), ids[0], starts).numpy()
    assert abs(merged - lora["logits"]).max() < 1e-5 * abs(merged).max()
    lora["logits"] = merged
    out |= {"lora." + name: value for name, value in lora.items()}
    return {name: np.ascontiguousarray(value) for name, value in out.items()}


def write_family(family):
    folder, dtype = ROOT / family, FAMILIES[family][1]
    make_model(family).to(dtype).save_pretrained(folder)
    add_adapter(make_model(family), family).save_pretrained(folder / "adapter")
    (folder / "adapter/README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter/adapter_config.json").read_text())
    config["target_modules"] = sorted(config["target_modules"])  # a set: its order changes from run to run
    (folder / "adapter/adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(goldens(family, lambda: make_model(family), lambda model: add_adapter(model, family)),
              folder / "golden.safetensors")


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    for chosen in sys.argv[1:] or FAMILIES:
        write_family(chosen)
        print(chosen, sum(f.stat().st_size for f in (ROOT / chosen).rglob("*") if f.is_file()), "bytes")
