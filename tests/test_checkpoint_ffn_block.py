"""Reading one feed-forward block out of a checkpoint."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import BertModel

from hf_ffn import (
    FeedForward,
    FFNTextModel,
)

from tiny import bert_config, drop, our_class, rewrite, to_bin

Save = Callable[..., Path]


@pytest.mark.parametrize(("theirs", "save_kwargs"), [
    ("BertModel", None),
    ("BertForMaskedLM", None),
    ("BertForSequenceClassification", {"max_shard_size": "20KB"}),
    ("ViTModel", None),
    ("ViTForImageClassification", {"save_original_format": False}),
])  # fmt: skip
@pytest.mark.parametrize("layer", [0, 2])
def test_one_blocks_feed_forward_is_read(save_source: Save, theirs: str, save_kwargs: dict | None, layer: int) -> None:
    folder = save_source(theirs, save_kwargs=save_kwargs)
    ffn = FeedForward.from_pretrained(folder, layer=layer)
    whole = our_class(theirs).from_pretrained(folder).base_model.encoder.layers[layer].ffn
    assert not ffn.training
    x = torch.randn(2, 5, 32)
    assert torch.equal(ffn(x), whole(x))
    assert ffn.state_dict().keys() == whole.state_dict().keys()


def test_one_block_is_read_from_ours_and_from_bin_in_another_dtype(save_source: Save, tmp_path: Path) -> None:
    folder = save_source("BertModel")
    model = FFNTextModel.from_pretrained(folder)
    model.save_pretrained(tmp_path / "native")
    for place in (tmp_path / "native", to_bin(folder)):
        ffn = FeedForward.from_pretrained(place, layer=1, dtype="bfloat16")
        expected = model.encoder.layers[1].ffn.linear_1.weight.to(torch.bfloat16)
        assert torch.equal(ffn.linear_1.weight, expected)


@pytest.mark.parametrize("layer", [-1, 3, 12])
def test_a_layer_that_is_not_there_is_refused(save_source: Save, layer: int) -> None:
    with pytest.raises(ValueError, match="has the layers 0…2"):
        FeedForward.from_pretrained(save_source("BertModel"), layer=layer)


@pytest.mark.parametrize("change", [drop("layer.1.intermediate"), drop("layer.1.output.dense.bias")])
def test_a_block_with_a_missing_tensor_is_refused(save_source: Save, change: Callable) -> None:
    folder = save_source("BertModel")
    rewrite(folder, change)
    with pytest.raises(ValueError, match="layer 1"):
        FeedForward.from_pretrained(folder, layer=1)


READ_ONE_BLOCK = """
import sys, psutil, transformers
from hf_ffn import FeedForward
process = psutil.Process()
FeedForward.from_pretrained(sys.argv[1], layer=0)  # everything that is imported on the way is in
before = process.memory_info().rss
ffn = FeedForward.from_pretrained(sys.argv[1], layer=5)
assert float(sum(p.double().sum() for p in ffn.parameters())) != 0  # touch every byte
print(process.memory_info().rss - before, sum(p.numel() * p.element_size() for p in ffn.parameters()))
"""


@pytest.mark.slow
def test_reading_one_block_touches_little_more_than_its_bytes(tmp_path: Path) -> None:
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 8}
    BertModel(bert_config(**sizes, vocab_size=20_000)).save_pretrained(tmp_path)
    whole = (tmp_path / "model.safetensors").stat().st_size
    result = subprocess.run([sys.executable, "-c", READ_ONE_BLOCK, tmp_path], capture_output=True, text=True)
    read, block = map(int, result.stdout.split())
    assert whole > 15 * block
    assert read < 2.5 * block
