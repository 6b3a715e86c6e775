"""The golden rope tables and GGUF blocks are what the live libraries compute today."""
import importlib.util
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("make_goldens_formats", ROOT / "tools/make_goldens_formats.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rope_tables(tool):
    golden = json.loads((ROOT / "tests/golden/rope.json").read_text())
    live = list(tool.rope_cases())
    assert [case["config"] for case in live] == [case["config"] for case in golden]
    for ours, theirs in zip(golden, live):
        for layer, fresh in zip(ours["layers"], theirs["layers"], strict=True):
            assert layer["attention_factor"] == pytest.approx(fresh["attention_factor"], rel=1e-7), ours["name"]
            assert layer["inv_freq"] == pytest.approx(fresh["inv_freq"], rel=3e-7), ours["name"]


def test_gguf_blocks(tool):
    from safetensors.numpy import load_file
    golden = load_file(ROOT / "tests/golden/gguf_blocks.safetensors")
    live = dict(tool.gguf_blocks())
    assert golden.keys() == live.keys()
    for name, values in live.items():
        assert golden[name].tobytes() == values.tobytes(), name
