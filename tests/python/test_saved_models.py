"""What save_model writes is what transformers would have written, and loads in it; GGUF files mean the same to both."""
import json
import os
import pathlib
import subprocess

import pytest
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
FAMILIES = ["llama", "llama_tied", "qwen2", "qwen3", "mistral"]
FROM_GGUF = ["llama_tied", "qwen2", "qwen3"]


def test_model_program():
    tests = os.environ.get("SLIDEWAY_TESTS")
    for folder in [tests] if tests else [ROOT / "build/tests", ROOT / "build/dev/tests"]:
        if (program := pathlib.Path(folder) / "test_model").exists():
            return program
    pytest.skip("test_model is not built")


test_model_program.__test__ = False


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([test_model_program(), "--gtest_filter=SaveModel.Writes*"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "SLIDEWAY_SAVED_MODELS": str(folder)})
    return folder


def load(path, **options):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True, **options)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model


def expect_equal(a, b):
    assert a.state_dict().keys() == b.state_dict().keys()
    for name, tensor in a.state_dict().items():
        assert torch.equal(tensor, b.state_dict()[name]), name
    assert torch.equal(a.model.rotary_emb.inv_freq, b.model.rotary_emb.inv_freq)


@pytest.mark.parametrize("family", FAMILIES)
def test_loads_with_the_same_weights(saved, family):
    expect_equal(load(saved / family), load(GOLDEN / family))


@pytest.mark.parametrize("family", FAMILIES)
def test_index_is_the_one_that_transformers_writes(saved, family, tmp_path):
    load(GOLDEN / family).save_pretrained(tmp_path, max_shard_size=40_000)
    name = "model.safetensors.index.json"
    ours, theirs = (json.loads((folder / name).read_text()) for folder in (saved / family, tmp_path))
    assert ours["metadata"] == theirs["metadata"]
    assert ours["weight_map"].keys() == theirs["weight_map"].keys()
    assert (saved / family / name).read_text() == json.dumps(ours, indent=2, sort_keys=True) + "\n"
    for shard in set(ours["weight_map"].values()):
        assert (saved / family / shard).stat().st_size < 50_000
    shards = sorted(set(ours["weight_map"].values()))
    assert shards == [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]


@pytest.mark.parametrize("family", FROM_GGUF)
def test_config_made_from_gguf_is_the_models(saved, family):
    ours, golden = load(saved / f"{family}_from_gguf"), load(GOLDEN / family)
    expect_equal(ours, golden)
    ids = torch.arange(40).reshape(2, 20)
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, golden(ids).logits)


@pytest.mark.parametrize("family", FROM_GGUF)
def test_gguf_means_the_same_to_transformers(saved, family):
    """Checks the files that the tests write: names, metadata and permuted rows are those of llama.cpp."""
    from transformers import GgufConfig
    name = f"{family}.gguf"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        saved, gguf_file=name, quantization_config=GgufConfig(gguf_file=name, dequantize=True), dtype=torch.float32)
    golden = load(GOLDEN / family)
    for key, tensor in golden.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[key]), key
