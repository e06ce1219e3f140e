"""A folder of sentence-transformers comes from the Hub and goes there whole, with the folders of its modules."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from model_folder import WORDS
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as parts
from transformers import BertModel, BertTokenizer

from hf_ffn import convert
from hf_ffn.hub import stage as staging
from hf_ffn.hub.pull import pull
from hf_ffn.hub.push import push
from hf_ffn.hub.stage import stage

from tiny import bert_config, telling_model


def encoded(folder: Path) -> torch.Tensor:
    """What sentence-transformers makes of a sentence."""
    return SentenceTransformer(str(folder), device="cpu").encode("the encoder reads", convert_to_tensor=True)


def test_modules_come_from_the_hub_and_go_there(api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    telling_model(BertModel, bert_config()).save_pretrained(tmp_path / "encoder")
    (tmp_path / "encoder" / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(str(tmp_path / "encoder" / "vocab.txt")).save_pretrained(tmp_path / "encoder")
    torch.manual_seed(0)
    modules = [parts.Transformer(str(tmp_path / "encoder")), parts.Pooling(32, pooling_mode="cls"), parts.Dense(32, 8)]
    SentenceTransformer(modules=modules).save(str(tmp_path / "sentences"))
    expected = encoded(tmp_path / "sentences")
    api.create_repo("me/sentences")
    api.upload_folder(repo_id="me/sentences", folder_path=tmp_path / "sentences")

    convert("me/sentences", tmp_path / "ours", cache_dir=tmp_path / "cache")
    torch.testing.assert_close(encoded(tmp_path / "ours"), expected, rtol=0, atol=1e-5)

    monkeypatch.setattr(staging, "isolated", lambda scratch, how, *command: None)
    stage(tmp_path / "ours", tmp_path / "ready")
    push(tmp_path / "ready", "me/ours")
    pull("me/ours", tmp_path / "pulled")
    torch.testing.assert_close(encoded(tmp_path / "pulled"), expected, rtol=0, atol=1e-5)
    # And as it stands there it can be staged again, with its proof.
    report = stage("me/ours", tmp_path / "again", cache_dir=tmp_path / "cache")
    assert report.left_out == []
    assert (tmp_path / "again" / "equivalence.json").read_bytes() == (
        tmp_path / "ready" / "equivalence.json"
    ).read_bytes()
