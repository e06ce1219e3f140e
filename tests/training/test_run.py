"""What a run refuses before it begins, and that it outlives a push that fails."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

from hf_ffn import FFNVisionConfig
from hf_ffn.training import run
from hf_ffn.training.arguments import DataArguments, ModelArguments, TrainingArguments

from tiny import ffn_model, ffn_text_config


def test_adapters_under_fsdp_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    sharded: Any = SimpleNamespace(distributed_type=DistributedType.FSDP)
    arguments = ModelArguments(lora="linear_1"), DataArguments(), TrainingArguments(output_dir=str(tmp_path))
    nothing: Any = None
    with pytest.raises(ValueError, match="lora and FSDP"):
        run.finetune(sharded, nothing, nothing, None, *arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("device", "precision", "kernels", "has", "warned"),
    [
        ("cpu", "bf16", "AVX2", False, True),
        ("cpu", "bf16", "AVX512", False, True),
        ("cpu", "bf16", "AVX512", True, False),
        ("cpu", "no", "AVX2", False, False),
        ("cpu", "bf16", "SVE256", False, False),
        ("cuda", "bf16", "AVX2", False, False),
    ],
)
def test_bfloat16_on_a_processor_that_emulates_it_is_warned_of(
    device: str,
    precision: str,
    kernels: str,
    has: bool,
    warned: bool,
    messages: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: kernels)
    monkeypatch.setattr(run, "has_bfloat16", lambda: has)
    accelerator: Any = SimpleNamespace(device=torch.device(device), mixed_precision=precision)
    run.warn_of_emulated_bfloat16(accelerator)
    assert ("emulates it" in messages.text) == warned


@pytest.mark.parametrize(
    ("flag", "launched", "expected"), [(None, "bf16", "bf16"), ("no", "bf16", "no"), (None, None, "no")]
)
def test_a_run_computes_in_the_precision_that_it_was_launched_with_where_no_flag_says_another(
    flag: str | None, launched: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if launched is not None:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched)
    AcceleratorState._reset_state(reset_partial_state=True)
    args = TrainingArguments(output_dir=str(tmp_path / "out"), mixed_precision=flag)
    computed_in = run.make_accelerator(args).mixed_precision
    AcceleratorState._reset_state(reset_partial_state=True)
    assert (computed_in, args.mixed_precision) == (expected, expected)


def test_a_tracker_that_is_not_installed_is_refused_for_accelerate_would_leave_it_out(tmp_path: Path) -> None:
    flags: Any = {"output_dir": str(tmp_path / "out"), "with_tracking": True}
    with pytest.raises(ValueError, match=r"report_to=wandbb: not installed here.*installed: .*tensorboard"):
        run.make_accelerator(TrainingArguments(report_to="tensorboard,wandbb", **flags))
    assert not (tmp_path / "out").exists()
    assert run.trackers("tensorboard") == ["tensorboard"]


@pytest.mark.parametrize(
    ("overrides", "heads"),
    [
        ("hidden_size=64,intermediate_size=128", 1),
        ("hidden_size=384,num_attention_heads=12", 12),
        ("num_attention_heads=4", 4),
        (None, 12),
    ],
)
def test_a_new_models_heads_follow_from_its_size_where_none_are_given(overrides: str | None, heads: int) -> None:
    config = run.new_config(FFNVisionConfig, ModelArguments(config_overrides=overrides), num_labels=3)
    assert (config.num_attention_heads, config.num_labels) == (heads, 3)


def test_a_model_is_the_same_wherever_it_lies_until_a_weight_is_another(tmp_path: Path) -> None:
    model = ffn_model("FFNTextModel")
    starts = []
    for name in ("here", "there", "other"):
        if name == "other":
            torch.nn.init.zeros_(model.pooler.dense.bias)
        model.save_pretrained(tmp_path / name)
        starts.append(run.start_of(ModelArguments(model_name_or_path=str(tmp_path / name))))
    assert starts[0] == starts[1] != starts[2]
    assert run.start_of(ModelArguments(model_name_or_path="me/model")) == {"model": "me/model"}
    assert run.start_of(ModelArguments()) == {"model": None}


def test_a_push_in_the_midst_of_a_run_that_fails_is_said_and_the_run_goes_on(
    tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    def share(folder: Path, message: str) -> None:
        raise ValueError("the Hub is down")

    run.share_or_say(share, tmp_path, "After epoch 1")
    assert "not pushed (After epoch 1), and the training goes on: the Hub is down" in messages.text


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


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ({"id2label": {0: "mild", 1: "hot"}, "problem_type": "multi_label_classification"}, ["mild", "hot"]),
        ({"id2label": {0: "mild", 1: "hot"}, "problem_type": "single_label_classification"}, []),
        ({"num_labels": 2, "problem_type": "multi_label_classification"}, []),
    ],
)
def test_only_a_head_that_says_yes_or_no_to_each_label_names_0_or_1_lists(
    head: dict[str, Any], names: list[str]
) -> None:
    assert run.labels_of(ffn_text_config(**head)) == names
