"""What PyTorch makes of the shapes that `slideway bench train` runs, on the GPU, everything resident.

    python bench/peers/train_torch.py --shape llama-3.1-8b --tokens 8192,16384 --mode layers|full|lora [--compile]

  layers  one decoder layer: forward, recompute and backward of all tokens, times the model's layers; no head, no update:
          the anchor that a sliding engine can reach at most
  full    the whole model: BF16 autocast over FP32 weights, gradient checkpointing, clipping, fused AdamW
  lora    peft on all linear modules over a frozen BF16 base, gradient checkpointing, AdamW

A line a size: {"peer", "mode", "tokens", "step_s", "tokens_per_s", "peak_gib"}. Weights are random, the shapes true.
"""
import argparse
import json
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SHAPES = {  # model_type, layers, hidden, feed-forward, heads, key-value heads, head width, vocabulary, tied, theta
    "qwen3-4b": ("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, True, 1e6),
    "qwen3-8b": ("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, False, 1e6),
    "qwen3-14b": ("qwen3", 40, 5120, 17408, 40, 8, 128, 151936, False, 1e6),
    "llama-3.1-8b": ("llama", 32, 4096, 14336, 32, 8, 128, 128256, False, 5e5),
    "mistral-24b": ("mistral", 40, 5120, 32768, 32, 8, 128, 131072, False, 1e8),
}


def config_of(name, layers):
    kind, depth, hidden, ff, heads, kv, width, vocabulary, tied, theta = SHAPES[name]
    return AutoConfig.for_model(kind, num_hidden_layers=layers or depth, hidden_size=hidden, intermediate_size=ff,
                                num_attention_heads=heads, num_key_value_heads=kv, head_dim=width,
                                vocab_size=vocabulary, tie_word_embeddings=tied, rope_theta=theta,
                                max_position_embeddings=32768, sliding_window=None, use_cache=False)


def timed(step, warm, steps):
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def report(chosen, tokens, seconds):
    print(json.dumps({"peer": f"torch {torch.__version__}", "mode": chosen.mode + (" compiled" if chosen.compile else ""),
                      "shape": chosen.shape, "layers": chosen.layers or SHAPES[chosen.shape][1], "seq": chosen.seq,
                      "tokens": tokens, "step_s": round(seconds, 4), "tokens_per_s": round(tokens / seconds, 1),
                      "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}), flush=True)


def build(config, dtype):
    with torch.device("cuda"):
        previous = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        finally:
            torch.set_default_dtype(previous)


def run_layers(chosen, tokens):
    depth = chosen.layers or SHAPES[chosen.shape][1]
    model = build(config_of(chosen.shape, 1), torch.bfloat16)
    layer, rotary = model.model.layers[0], model.model.rotary_emb
    samples = min(chosen.micro, tokens // chosen.seq)
    x = torch.randn(samples, chosen.seq, model.config.hidden_size, dtype=torch.bfloat16, device="cuda")
    where = rotary(x, torch.arange(chosen.seq, device="cuda")[None])
    run = torch.compile(layer) if chosen.compile else layer

    def step():
        for _ in range(tokens // (samples * chosen.seq)):
            with torch.no_grad():
                run(x, position_embeddings=where)
            inner = x.detach().requires_grad_()
            out = run(inner, position_embeddings=where)
            out = out[0] if isinstance(out, tuple) else out
            out.backward(x)

    report(chosen, tokens, timed(step, 3, 5) * depth)


def run_model(chosen, tokens):
    config = config_of(chosen.shape, chosen.layers)
    lora = chosen.mode == "lora"
    model = build(config, torch.bfloat16 if lora else torch.float32)
    if lora:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=chosen.rank, lora_alpha=2 * chosen.rank, target_modules="all-linear"))
        model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    run = torch.compile(model) if chosen.compile else model
    samples = min(chosen.micro, tokens // chosen.seq)
    ids = torch.randint(config.vocab_size, (samples, chosen.seq), device="cuda")
    turns = tokens // (samples * chosen.seq)

    def step():
        for _ in range(turns):
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(input_ids=ids, labels=ids).loss / turns
            loss.backward()
        if chosen.max_grad_norm > 0:
            torch.nn.utils.clip_grad_norm_(trained, chosen.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    report(chosen, tokens, timed(step, 1, 3))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--shape", default="llama-3.1-8b", choices=SHAPES)
    options.add_argument("--mode", default="layers", choices=("layers", "full", "lora"))
    options.add_argument("--tokens", default="8192,32768", type=lambda text: [int(n) for n in text.split(",")])
    options.add_argument("--seq", default=1024, type=int)
    options.add_argument("--micro", default=4, type=int, help="samples of a micro-batch")
    options.add_argument("--layers", default=0, type=int, help="0: all")
    options.add_argument("--rank", default=16, type=int)
    options.add_argument("--max-grad-norm", default=1.0, type=float)
    options.add_argument("--compile", action="store_true")
    chosen = options.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    for tokens in chosen.tokens:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        (run_layers if chosen.mode == "layers" else run_model)(chosen, tokens)


if __name__ == "__main__":
    main()
