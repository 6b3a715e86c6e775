"""A server of build/slideway for tests: a tiny random model with SmolLM2's tokenizer, and adapters made by peft."""
import os
import pathlib
import re
import subprocess
import threading

import peft
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLIDEWAY = pathlib.Path(os.environ.get("SLIDEWAY", ROOT / "build/slideway"))
GGUF = ROOT / ".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 2048


def make_model(folder):
    """Two layers with random weights; what it says makes no sense, but is always the same."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(GGUF.parent, gguf_file=GGUF.name)
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=49152, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, tie_word_embeddings=True, initializer_range=0.3,
        bos_token_id=1, eos_token_id=2)
    model = transformers.LlamaForCausalLM(config)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=[2, 0])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_adapter(model_folder, folder, seed, rank=4):
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder)
    torch.manual_seed(seed)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=rank, lora_alpha=4 * rank, init_lora_weights=False,
                                                         target_modules=["q_proj", "v_proj", "down_proj"]))
    adapted.save_pretrained(folder)
    return folder


class Server:
    """A running `slideway serve`; what it logged is in log."""

    def __init__(self, model, *arguments, environment=None, wait=True):
        self.log = []
        self.url = None
        self.process = subprocess.Popen(
            [SLIDEWAY, "serve", model, "--port", "0", "--served-model-name", "base", *map(str, arguments)],
            stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if wait:
            assert self.ready.wait(60) and self.url, "".join(self.log)

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"serving .* on (https?://\S+)", line):
                self.url = found[1]
                self.ready.set()
        self.ready.set()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(40)
        self.reader.join(10)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
