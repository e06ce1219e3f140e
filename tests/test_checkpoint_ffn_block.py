"""Reading one feed-forward block out of a checkpoint."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import BertModel

import hf_ffn
from hf_ffn import FeedForward, FFNConfig, FFNTextModel

from families import ROWS, Row
from families.rows import source_class
from tiny import bert_config, drop, our_class, rewrite, telling_model, to_bin

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


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_block_of_every_family_is_read(row: Row, tmp_path: Path) -> None:
    ours, theirs = row.pairs[0]
    telling_model(source_class(theirs), row.source_config()).save_pretrained(tmp_path)
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    x = torch.randn(5, model.config.hidden_size)
    for layer, block in enumerate(model.base_model.encoder.blocks()):
        assert torch.equal(FeedForward.from_pretrained(tmp_path, layer=layer)(x), block.ffn(x))


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


# State dicts of the lecture's own classes, which hold no configuration


class LectureFeedForward(nn.Module):
    """The lecture's block: its names, its exact GELU."""

    def __init__(self, hidden_size: int = 32, intermediate_size: int = 48) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(hidden_size, intermediate_size)
        self.linear_2 = nn.Linear(intermediate_size, hidden_size)
        self.gelu = nn.GELU()
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.linear_2(self.gelu(self.linear_1(x))))


class LectureEncoder(nn.Module):
    """As many blocks as make layer 1 and layer 11 two."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(9, 32)
        self.layers = nn.ModuleList([nn.Module() for _ in range(12)])
        for layer in self.layers:
            layer.layer_norm_1 = nn.LayerNorm(32)
            layer.feed_forward = LectureFeedForward()


def save(tensors: dict, path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.parametrize("name", [None, "block.safetensors", "block.bin", "block.pt", "block.pth"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_lectures_block_is_read_from_its_state_dict(name: str | None, dtype: torch.dtype, tmp_path: Path) -> None:
    lecture = LectureFeedForward().eval()
    with torch.no_grad():
        lecture.linear_1.weight.mul_(9)
    source = lecture.state_dict() if name is None else save(lecture.state_dict(), tmp_path / name)
    ffn = FeedForward.from_pretrained(source, dtype=dtype)
    assert not ffn.training
    x = torch.randn(2, 5, 32, dtype=dtype)
    assert torch.equal(ffn(x), lecture.to(dtype)(x))


@pytest.mark.parametrize("prefix", ["", "encoder."])
@pytest.mark.parametrize("name", [None, "encoder.safetensors", "encoder.pt"])
def test_a_lectures_encoder_gives_each_of_its_blocks(name: str | None, prefix: str, tmp_path: Path) -> None:
    encoder = LectureEncoder().eval()
    tensors = {f"{prefix}{key}": tensor for key, tensor in encoder.state_dict().items()}
    source = tensors if name is None else save(tensors, tmp_path / name)
    x = torch.randn(5, 32)
    for layer in (0, 1, 11):
        ffn = FeedForward.from_pretrained(source, layer=layer)
        assert torch.equal(ffn(x), encoder.layers[layer].feed_forward(x))
    with pytest.raises(ValueError, match="holds 12 feed-forward blocks"):
        FeedForward.from_pretrained(source)
    with pytest.raises(ValueError, match="holds no feed-forward blocks for layer 12"):
        FeedForward.from_pretrained(source, layer=12)


def test_a_block_of_ours_is_read_from_its_state_dict() -> None:
    ours = FeedForward(FFNConfig(hidden_size=32, intermediate_size=48, num_attention_heads=4)).eval()
    x = torch.randn(5, 32)
    assert torch.equal(FeedForward.from_pretrained(ours.state_dict())(x), ours(x))


def test_a_state_dict_is_copied() -> None:
    lecture = LectureFeedForward()
    ffn = FeedForward.from_pretrained(lecture.state_dict())
    before = ffn.linear_1.weight.clone()
    with torch.no_grad():
        lecture.linear_1.weight.zero_()
    assert torch.equal(ffn.linear_1.weight, before)
    ffn(torch.randn(5, 32)).sum().backward()
    assert ffn.linear_1.weight.grad.abs().sum() > 0


BLOCK = LectureFeedForward().state_dict()


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "holds no feed-forward blocks"),
        ({"weight": torch.zeros(3, 3)}, "holds no feed-forward blocks"),
        ({"model": BLOCK, "epoch": 3}, "holds no feed-forward blocks"),
        ({f"my_{n}": t for n, t in BLOCK.items()}, "holds no feed-forward blocks"),
        ({n: t for n, t in BLOCK.items() if n != "linear_2.bias"}, "expected the tensors"),
        ({n: t for n, t in BLOCK.items() if n != "linear_1.weight"}, "holds no feed-forward blocks"),
        ({**BLOCK, "linear_2.weight": torch.zeros(32, 47)}, "expected the tensors"),
        ({**BLOCK, "linear_1.weight": torch.zeros(48)}, "linear_1.weight is no matrix"),
        ({**BLOCK, "linear_gate.weight": torch.zeros(48, 32)}, "expected the tensors"),
        ({n: t.int() for n, t in BLOCK.items()}, "of type torch.int32"),
    ],
)
@pytest.mark.parametrize("name", [None, "block.pt"])
def test_a_faulty_state_dict_is_refused(tensors: dict, said: str, name: str | None, tmp_path: Path) -> None:
    source = tensors if name is None else save(tensors, tmp_path / name)
    with pytest.raises(ValueError, match=f"{'the state dict' if name is None else name}.*{said}"):
        FeedForward.from_pretrained(source)


def test_a_file_that_holds_no_dictionary_is_refused(tmp_path: Path) -> None:
    torch.save([torch.zeros(3)], tmp_path / "block.pt")
    with pytest.raises(ValueError, match=r"block.pt' holds a list, where a dictionary of tensors is expected"):
        FeedForward.from_pretrained(tmp_path / "block.pt")
    torch.save(LectureFeedForward(), tmp_path / "module.pt")
    with pytest.raises(ValueError, match="Pickles that hold more than tensors are refused"):
        FeedForward.from_pretrained(tmp_path / "module.pt")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*block.pt'"):
        FeedForward.from_pretrained(tmp_path / "block.pt")


@pytest.mark.parametrize("keyword", ["part", "revision"])
def test_keywords_for_checkpoints_are_refused_beside_a_state_dict(keyword: str) -> None:
    with pytest.raises(ValueError, match=f"{keyword}: for checkpoints with a config.json"):
        FeedForward.from_pretrained(BLOCK, **{keyword: "text"})


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
