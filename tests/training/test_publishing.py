"""A run that publishes what it trained, over HTTP to a loopback Hub."""

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from scripts_runner import start

from loopback_hub import TOKEN, Hub, serve

TINY = "hidden_size=32,num_hidden_layers=2,num_attention_heads=4,intermediate_size=64,image_size=8,patch_size=2,num_channels=1"  # noqa: E501


def flags(tmp_path: Path, *more: Any) -> list[Any]:
    """Flags of a run of two epochs that pushes."""
    return ["--dataset_name", "digits", "--config_overrides", TINY, "--output_dir", tmp_path / "out",
            "--max_train_samples", 32, "--max_eval_samples", 20, "--num_train_epochs", 2, "--push_to_hub",
            "--hub_model_id", "digits-vit", *more]  # fmt: skip


def environment(hub: Hub, tmp_path: Path, token: str = TOKEN) -> dict[str, str]:
    """What the client needs to talk to the Hub."""
    return {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HOME": str(tmp_path / "hf-home"), "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1"}  # fmt: skip


@pytest.mark.slow
def test_each_epoch_and_the_end_are_commits_and_the_card_holds_the_results(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text("license: mit\nlimits: Only digits.\n")
    with serve() as hub:
        more = flags(tmp_path, "--hub_strategy", "epoch", "--card", tmp_path / "card.yaml")
        script = start("finetune_image.py", tmp_path / "log", *more, environment=environment(hub, tmp_path)).wait()
        assert script.code == 0, script.output
        assert f"{hub.url}/me/digits-vit" in script.output
        assert TOKEN not in script.output
        repo = hub.repo("me/digits-vit")
    messages = [commit.message for commit in repo.commits.values()]
    assert messages[-2:] == ["After epoch 1", "Trained"]
    files = repo.files()
    assert {"model.safetensors", "modeling_ffn_vision.py", "training_curves.png", "README.md"} <= files.keys()
    assert not [name for name in files if "checkpoint-" in name or name == "run.json"]
    assert json.loads(files["training_arguments.json"])["arguments"]["num_train_epochs"] == 2
    assert str(tmp_path) not in files["training_arguments.json"].decode()
    card = ModelCard(files["README.md"].decode())
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert card.data.license == "mit"
    assert "Only digits." in card.text
    reported = {result.metric_name: result.metric_value for result in card.data.eval_results or []}
    assert reported["Accuracy"] == round(results["accuracy"], 4)


@pytest.mark.slow
def test_a_run_that_could_not_push_says_so_before_it_trains(tmp_path: Path) -> None:
    with serve() as hub:
        nobody = environment(hub, tmp_path, token="")
        script = start("finetune_image.py", tmp_path / "log", *flags(tmp_path), environment=nobody).wait()
    assert script.code == 1
    assert script.output.strip().splitlines()[-1].startswith("finetune_image.py: not signed in to the Hub")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_push_that_is_refused_leaves_the_trained_model_and_one_line(tmp_path: Path) -> None:
    with serve() as hub:
        wrong = environment(hub, tmp_path, token="hf_wrong")
        more = flags(tmp_path, "--hub_strategy", "end", "--hub_token", "hf_wrong")
        script = start("finetune_image.py", tmp_path / "log", *more, environment=wrong).wait()
    assert script.code == 1
    assert "Traceback" not in script.output
    assert script.output.strip().splitlines()[-1].startswith("finetune_image.py: ")
    assert "hf_wrong" not in script.output
    assert (tmp_path / "out" / "model.safetensors").exists()
