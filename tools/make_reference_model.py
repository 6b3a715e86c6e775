#!/usr/bin/env python3
"""make_reference_model.py GGUF FOLDER: the model as transformers dequantises it, in FP32, with its tokenizer."""
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

gguf, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(
    gguf.parent, gguf_file=gguf.name, dtype=torch.float32,
    quantization_config=GgufConfig(gguf_file=gguf.name, dequantize=True))
model.save_pretrained(folder)
AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
