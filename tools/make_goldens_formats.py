#!/usr/bin/env python3
"""Makes tests/golden/rope.json (rope tables by transformers) and tests/golden/gguf_blocks.safetensors (GGUF blocks
and their values by the gguf package). Run with the oracle interpreter; the output is the same at every run."""
import json
import pathlib
import warnings

import gguf
import numpy
import torch
from safetensors.numpy import save_file
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
CLASSES = {"llama": LlamaConfig, "mistral": MistralConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

# Fields beside the sizes, in the spelling of a config.json.
ROPES = {
    "absent": {},
    "theta, old spelling": {"rope_theta": 500000.0},
    "theta, new spelling": {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "head_dim": 128,
                            "model_type": "qwen3"},
    "theta of both spellings": {"rope_theta": 1234.0, "rope_parameters": {"rope_type": "default", "rope_theta": 5e6}},
    "theta beside new spelling": {"rope_theta": 777.0, "rope_parameters": {"rope_type": "default"}},
    "null scaling": {"rope_theta": 100000, "rope_scaling": None},
    "linear, old key": {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "linear, new spelling": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}},
    "llama3": {"rope_theta": 500000.0, "head_dim": 128, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
    "llama3, old key": {"rope_theta": 500000.0, "head_dim": 128, "rope_scaling": {"type": "llama3", **LLAMA3}},
    "llama3, new spelling": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3, "factor": 32.0}},
    "llama3, original from the top": {"rope_theta": 500000.0, "original_max_position_embeddings": 4096,
                                      "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
    "yarn, old key": {"rope_theta": 1000000.0, "model_type": "qwen2", "max_position_embeddings": 32768,
                      "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    "yarn, original absent": {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": 8.0}},
    "yarn, attention_factor": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0,
                                                   "original_max_position_embeddings": 4096, "attention_factor": 0.7}},
    "yarn, mscale": {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
                                      "mscale": 1.2, "mscale_all_dim": 0.6, "beta_fast": 24, "beta_slow": 2}},
    "yarn, equal mscales": {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
                                             "mscale": 1.0, "mscale_all_dim": 1.0}},
    "yarn, not truncated": {"rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                            "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096}},
    "yarn, factor null": {"max_position_embeddings": 16384,
                          "rope_scaling": {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 4096}},
    "yarn, a tiny context": {"head_dim": 8, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                                             "original_max_position_embeddings": 16}},
    "by layer type": {"model_type": "qwen3", "head_dim": 64, "num_hidden_layers": 3, "use_sliding_window": True,
                      "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                      "rope_parameters": {
                          "full_attention": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0,
                                             "original_max_position_embeddings": 4096},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
}


def table(config):
    """The one table of a model whose layers are all alike."""
    made = CLASSES[config["model_type"]](**json.loads(json.dumps(config)))
    rope_type = made.rope_parameters["rope_type"]
    make = LlamaRotaryEmbedding.compute_default_rope_parameters if rope_type == "default" else ROPE_INIT_FUNCTIONS[rope_type]
    inv_freq, factor = make(made)
    return {"inv_freq": inv_freq.to(torch.float32).tolist(), "attention_factor": float(factor)}


def rope_cases():
    for name, fields in ROPES.items():
        config = {"model_type": "llama", "vocab_size": 16, "hidden_size": 256, "intermediate_size": 32, "num_hidden_layers": 1,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, **fields}
        # These classes cannot hold tables by layer type themselves: each type is a model of its own.
        flat = [{**config, "rope_parameters": config["rope_parameters"][layer_type]}
                for layer_type in config.get("layer_types", [])] or [config]
        yield {"name": name, "config": config, "layers": [table(one) for one in flat]}


def gguf_blocks():
    random = numpy.random.default_rng(7)
    for name in "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K".split():
        kind = gguf.GGMLQuantizationType[name]
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (512 // numbers, size), dtype=numpy.uint8)
        halves = {"Q8_0": 1, "Q4_0": 1, "Q5_0": 1, "Q4_1": 2, "Q5_1": 2, "Q4_K": 2, "Q5_K": 2, "Q6_K": 1}.get(name, 0)
        scales = random.normal(0, 1, (len(blocks), halves)).astype(numpy.float16).view(numpy.uint8)
        if name == "Q6_K":
            blocks[:, -2:] = scales
        elif halves:
            blocks[:, :2 * halves] = scales
        elif name != "Q8_0":
            blocks = blocks.reshape(-1)
            plain = random.normal(0, 1, 512).astype(numpy.float32)
            blocks = (gguf.quantize(plain, kind) if name != "F32" else plain).view(numpy.uint8)
        values = gguf.dequantize(blocks.reshape(-1), kind).reshape(-1).astype(numpy.float32)
        assert values.shape == (512,) and numpy.isfinite(values).all(), name
        yield f"{name}.blocks", blocks.reshape(-1)
        yield f"{name}.values", values


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    (GOLDEN / "rope.json").write_text(json.dumps(list(rope_cases()), indent=1) + "\n")
    save_file(dict(gguf_blocks()), GOLDEN / "gguf_blocks.safetensors", metadata={"format": "np"})
