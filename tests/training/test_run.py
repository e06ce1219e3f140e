"""What a run pushes to the Hub."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub.utils import filter_repo_objects

from hf_ffn.training import run
from hf_ffn.training.arguments import ModelArguments, TrainingArguments

from tiny import ffn_model


def test_the_trained_model_is_pushed_without_checkpoints_in_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, dict[str, Any]]] = []

    class Recorder:
        def __init__(self, token: str | None) -> None:
            said.append(("token", {"token": token}))

        def create_repo(self, repo_id: str, **kwargs: Any) -> SimpleNamespace:
            said.append(("create", {"repo_id": repo_id, **kwargs}))
            return SimpleNamespace(repo_id=f"me/{repo_id}")

        def upload_folder(self, **kwargs: Any) -> None:
            said.append(("upload", kwargs))

    monkeypatch.setattr(run, "HfApi", Recorder)
    run.push(tmp_path, TrainingArguments(output_dir=str(tmp_path), hub_model_id="digits", hub_token="hf_x"))
    assert [name for name, _ in said] == ["token", "create", "upload"]
    upload = said[2][1]
    assert (upload["repo_id"], upload["folder_path"]) == ("me/digits", tmp_path)
    files = ["model.safetensors", "config.json", "modeling_ffn.py", "training_curves.png", "best/model.safetensors",
             "checkpoint-3/optimizer.bin", "logs/events", "run.json", ".checkpoint-4/model.safetensors"]  # fmt: skip
    assert list(filter_repo_objects(files, ignore_patterns=upload["ignore_patterns"])) == files[:4]


@pytest.mark.parametrize(
    ("asked", "expected"), [(None, "input"), ("full", "full"), ("pre_activation", "pre_activation")]
)
def test_what_feed_forward_blocks_keep_is_as_asked_or_as_the_checkpoint_says(
    asked: str | None, expected: str, tmp_path: Path
) -> None:
    model = ffn_model("FFNForSequenceClassification", feed_forward_memory="input")
    args = TrainingArguments(output_dir=str(tmp_path))
    run.prepare_for_training(model, ModelArguments(feed_forward_memory=asked), args)
    assert model.config.feed_forward_memory == expected
    assert {block.ffn.config.feed_forward_memory for block in model.base_model.encoder.layers} == {expected}
