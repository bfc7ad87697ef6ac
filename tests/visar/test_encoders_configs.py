"""Each encoder's configuration makes an encoder, pins what it loads, and asks for nothing before first use."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from visar.encoders import Encoder, TokenStates

FOLDER = Path(__file__).parents[2] / "configs" / "visar" / "encoder"
NEEDS = {
    "minilm": "text",
    "minilm_hub": "text",
    "colbertv2": "text",
    "colpali": "image",
    "colqwen2_5": "image",
    "colmodernvbert": "image",
}


def make(name: str, cache: Path) -> Encoder:
    # As in the commands, where the encoder is one group of a configuration that also says where the cache is.
    config = OmegaConf.create({"cache": str(cache), "encoder": OmegaConf.load(FOLDER / f"{name}.yaml")})
    return instantiate(config.encoder)


def test_every_file_is_known_here():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(NEEDS)


@pytest.mark.parametrize("name", list(NEEDS))
def test_a_configuration_makes_a_pinned_encoder_and_touches_nothing(name, tmp_path):
    encoder = make(name, tmp_path)
    assert isinstance(encoder, Encoder)
    assert encoder.needs == NEEDS[name]
    fingerprint = encoder.fingerprint()
    for part in {"weights", "base_weights"} & set(fingerprint):
        assert re.fullmatch(r"sha256:[0-9a-f]{64}|[0-9a-f]{40}", fingerprint[part])
    assert all(isinstance(value, str) for pair in fingerprint.items() for value in pair)
    assert pickle.loads(pickle.dumps(encoder)).fingerprint() == fingerprint  # noqa: S301 (made here)
    assert list(tmp_path.iterdir()) == []


def test_configurations_have_distinct_fingerprints(tmp_path):
    found = [tuple(sorted(make(name, tmp_path).fingerprint().items())) for name in NEEDS]
    assert len(set(found)) == len(found)


def test_the_configured_default_is_the_default_of_the_class(tmp_path):
    assert make("minilm", tmp_path).fingerprint() == TokenStates().fingerprint()
