"""What lies in tests/golden is what the live libraries compute: the models are made again from their seeds, the goldens
are computed again from the files as they lie there."""
import pathlib
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import make_goldens  # noqa: E402


def distance(found, wanted):
    """max |found - wanted| / max |wanted|"""
    return np.abs(found - wanted).max() / np.abs(wanted).max()


@pytest.mark.parametrize("family", make_goldens.FAMILIES)
def test_goldens_are_what_transformers_and_peft_compute(family):
    stored = load_file(make_goldens.ROOT / family / "golden.safetensors")
    live = make_goldens.goldens(family, lambda: make_goldens.load_model(family),
                                lambda model: make_goldens.load_adapter(model, family))
    assert stored.keys() == live.keys()
    for name, wanted in stored.items():
        assert live[name].shape == wanted.shape and live[name].dtype == wanted.dtype, name
        if wanted.dtype == np.int32:
            assert (live[name] == wanted).all(), name
        else:
            assert distance(live[name], wanted) < (2e-5 if "grad." in name else 2e-6), name


@pytest.mark.parametrize("family", make_goldens.FAMILIES)
def test_models_are_made_from_their_seeds(family):
    made = make_goldens.make_model(family).state_dict()
    for name, tensor in make_goldens.load_model(family).state_dict().items():
        assert (tensor == made[name]).all(), name
