"""A model's card, made from what the files beside the model say and from what its owner states."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .. import __version__
from ..dimensions import dimensions, takes_spectrograms
from ..training.remarks import REMARKS
from .details import CardDetails
from .facts import EMBEDDED, LOCAL, Facts
from .snippets import is_vision, snippet

# By our tasks, the Hub's.
PIPELINE_TAGS = {
    "masked-lm": "fill-mask",
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
    "image-classification": "image-classification",
    "image-classification-with-teacher": "image-classification",
    "audio-classification": "audio-classification",
}
# By our names, the Hub's name of a metric and how it is computed, and how people call it.
METRICS: dict[str, tuple[str, dict[str, str] | None, str]] = {
    "accuracy": ("accuracy", None, "Accuracy"),
    "macro_f1": ("f1", {"average": "macro"}, "Macro F1"),
    "micro_f1": ("f1", {"average": "micro"}, "Micro F1"),
    "matthews": ("matthews_correlation", None, "Matthews correlation"),
    "entity_f1": ("seqeval", None, "Entity F1"),
    "pearson": ("pearsonr", None, "Pearson correlation"),
    "spearman": ("spearmanr", None, "Spearman correlation"),
    "mse": ("mse", None, "Mean squared error"),
    "mae": ("mae", None, "Mean absolute error"),
}
# The arguments that decide what was trained; paths and accounts are nobody's business.
TRAINING_ARGUMENTS = (
    "task", "max_length", "augment", "per_device_train_batch_size", "gradient_accumulation_steps", "num_processes",
    "learning_rate", "lr_scheduler_type", "num_warmup_steps", "num_train_epochs", "max_train_steps",
    "max_train_samples", "weight_decay", "max_grad_norm", "dtype", "mixed_precision", "train_only",
    "freeze_embeddings", "lora", "lora_rank", "config_overrides", "seed",
)  # fmt: skip
NOT_STATED = "**Not stated by the owner.** Ask before you rely on this model for {what}."


def make_card(facts: Facts, details: CardDetails) -> ModelCard:
    """The card of a model.

    Args:
        facts: what the files beside the model say.
        details: what only a person can say; gaps are shown as such.
    """
    repo_id = details.repo_id or "your-name/your-model"
    example = details.example
    return ModelCard.from_template(
        card_data(facts, details, repo_id),
        template_str=template(),
        title=details.title or repo_id.split("/")[-1],
        summary=summary(facts, details),
        snippet_without=snippet(facts, repo_id, example, with_hf_ffn=False),
        snippet_with=snippet(facts, repo_id, example, with_hf_ffn=True),
        intended_use=details.intended_use or NOT_STATED.format(what="anything that matters"),
        limits=details.limits or NOT_STATED.format(what="texts or images unlike those it was trained on"),
        dimensions=dimensions_table(facts),
        results=results_section(facts),
        training=training_section(facts),
        equivalence=equivalence_section(facts),
        version=__version__,
    )


def template() -> str:
    """The card's template: beside this file in an installed package, in `model_cards/` in the repository."""
    here = Path(__file__)
    places = (here.with_name("template.md"), here.parents[2] / "model_cards" / "template.md")
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"the template of model cards is not at {places[0]}: hf_ffn is not wholly installed")
    return found.read_text(encoding="utf-8")


def card_data(facts: Facts, details: CardDetails, repo_id: str) -> ModelCardData:
    """The card's metadata; what is not known (None) is left out of the YAML by `ModelCardData`."""
    base_model = details.base_model or facts.base_model
    relation = details.base_model_relation or told_relation(facts)
    datasets = details.datasets or ([facts.dataset] if facts.dataset else None)
    results = eval_results(facts)
    of_sentences = ["sentence-transformers"] if facts.has_sentence_modules else []
    return ModelCardData(
        license=details.license,
        language=details.language,
        base_model=base_model,
        base_model_relation=relation if base_model else None,
        datasets=datasets,
        metrics=sorted({result.metric_type for result in results}) or None,
        library_name="transformers",
        pipeline_tag=pipeline_tag(facts),
        tags=["hf_ffn", "custom_code", *of_sentences, *details.tags],
        eval_results=results or None,
        model_name=repo_id.split("/")[-1] if results else None,
    )


def pipeline_tag(facts: Facts) -> str:
    """The Hub's name for what the model does."""
    if facts.task == "base":
        of_images = is_vision(facts) and not facts.has_feature_extractor
        return "image-feature-extraction" if of_images else "feature-extraction"
    return PIPELINE_TAGS[facts.task]


def told_relation(facts: Facts) -> str | None:
    """How the model was made from its base; None for a mere conversion, which changes nothing."""
    return "finetune" if facts.arguments else None


def eval_results(facts: Facts) -> list[EvalResult]:
    """The metrics of a fine-tuning, as the Hub's typed entries."""
    if facts.results is None:
        return []
    return [
        EvalResult(
            task_type=pipeline_tag(facts),
            dataset_type=facts.dataset or "local",
            dataset_config=facts.arguments.get("dataset_config_name") if facts.dataset else None,
            dataset_name=data_name(facts),
            metric_type=metric_type,
            metric_name=called,
            metric_value=facts.results[ours],
            metric_args=how,
        )
        for ours, (metric_type, how, called) in METRICS.items()
        if isinstance(facts.results.get(ours), float)
    ]


def data_name(facts: Facts) -> str:
    """What people call the data: local files stay unnamed, as their names are nobody's business."""
    if not facts.arguments:
        return "data that are not named"
    name, config = (facts.arguments.get(key) for key in ("dataset_name", "dataset_config_name"))
    if name in EMBEDDED:
        return f"{name} (embedded in hf_ffn)"
    if facts.dataset is None:
        return "local data"
    return f"{facts.dataset} ({config})" if config else facts.dataset


def summary(facts: Facts, details: CardDetails) -> str:
    """What the model is, in a few sentences."""
    base_model = details.base_model or facts.base_model
    layers, width = facts.config.num_hidden_layers, facts.config.hidden_size
    sentences = [f"`{facts.model_class.__name__}`: an encoder of {layers} layers, {width} wide, in hf_ffn's format."]
    family = facts.config.source_family
    if family is not None:
        # What a trained model was trained from may be a conversion already, or another training of one.
        original = facts.converted_from or (None if facts.arguments else base_model)
        origin = link(original) if original else f"a checkpoint of the family {family}"
        proven = facts.equivalence is not None and facts.equivalence.ok
        sentences.append(
            f"Its weights were converted from {origin} with the proof below."
            if proven
            else f"It goes back to {origin}."
        )
    if facts.arguments and facts.arguments.get("model_name_or_path"):
        start = f" from {link(base_model)}" if base_model else ""
        sentences.append(f"Fine-tuned{start} on {data_name(facts)}.")
    elif facts.arguments:
        sentences.append(f"Trained on {data_name(facts)}, from a random start.")
    return " ".join(sentences)


def link(repo_id: str) -> str:
    """A link to a model on the Hub."""
    return f"[{repo_id}](https://huggingface.co/{repo_id})"


def dimensions_table(facts: Facts) -> str:
    """Sizes of the model."""
    sizes = dimensions(facts.model_class, facts.config)
    share = sizes.feed_forward_parameters / sizes.encoder_parameters
    size = sizes.input_size
    one_input = f"{size} tokens" if isinstance(size, int) else f"{what_it_takes(facts)} of {size[0]} × {size[1]}"
    return table(
        ("", ""),
        [
            ("Parameters", f"{sizes.parameters:,}"),
            ("of the encoder's, in feed-forward blocks", f"{share:.0%}"),
            ("Weights", f"{sizes.weight_bytes / 1e6:,.1f} MB"),
            (f"Operations for {one_input}", f"{sizes.forward_flops / 1e9:,.3f} GFLOPs"),
            ("Hidden size, intermediate size", f"{facts.config.hidden_size}, {intermediate_sizes(facts)}"),
            ("Layers, attention heads", f"{facts.config.num_hidden_layers}, {facts.config.num_attention_heads}"),
        ],
    )


def what_it_takes(facts: Facts) -> str:
    """What one input of a model that takes no text is."""
    return "a spectrogram" if takes_spectrograms(facts.model_class, facts.config) else "an image"


def intermediate_sizes(facts: Facts) -> str:
    """Of the feed-forward blocks: one, or one by layer where they differ."""
    config = facts.config
    if not config.is_heterogeneous:
        return str(config.intermediate_size)
    sizes = [config.per_layer_config[layer].intermediate_size for layer in range(config.num_hidden_layers)]
    return str(sizes[0]) if len(set(sizes)) == 1 else f"{' / '.join(map(str, sizes))} by layer"


def results_section(facts: Facts) -> str:
    """Metrics, figures by class and pictures; empty where nothing was measured."""
    parts = []
    # To so many digits that a small error is no zero.
    rows = [(str(result.metric_name), f"{result.metric_value:.4g}") for result in eval_results(facts)]
    if rows:
        parts = [f"On the part of {data_name(facts)} that was held out:", table(("Metric", "Value"), rows)]
    per_class = (facts.results or {}).get("per_class")
    if per_class:
        parts.append(
            table(("Class", "Precision", "Recall", "F1", "Samples"), [class_row(*c) for c in per_class.items()])
        )
    parts += [f"![{shows}]({name})" for name, shows in facts.pictures.items() if name != "equivalence.png"]
    return "\n\n".join(parts)


def class_row(name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    """One class's figures as a row."""
    shares = [f"{figures[each]:.3f}" for each in ("precision", "recall", "f1")]
    return (escaped(name), *shares, str(figures["support"]))


def training_section(facts: Facts) -> str:
    """How it was trained and with what; empty where it was not."""
    if not facts.arguments:
        return ""
    arguments = {name: facts.arguments.get(name) for name in TRAINING_ARGUMENTS if name not in without_effect(facts)}
    # By identity, for 0 equals False and says something.
    said = {name: value for name, value in arguments.items() if value is not None and value is not False}
    rows = [(f"`{name}`", f"`{value}`") for name, value in said.items() if value != "no"]
    results = facts.results or {}
    told = {
        **samples_told("Training samples", results.get("data", {}).get("train", {})),
        **samples_told("Evaluation samples", results.get("data", {}).get("evaluation", {})),
        "Steps": results.get("train_steps"),
        "Seconds": results.get("train_seconds"),
        "Parameters trained": results.get("trained_parameters"),
        "Real tokens": results.get("tokens"),
        "Padding not computed": results.get("padding_not_computed"),
    }
    rows += [(name, f"{value:,}") for name, value in told.items() if value is not None]
    weights = ", ".join(f"{escaped(name)}: {weight:.4g}" for name, weight in results.get("class_weights", {}).items())
    rows += [("Class weights, in the loss", weights)] if weights else []
    versions = ", ".join(f"{name} {number}" for name, number in results.get("versions", {}).items())
    rows += [("Environment", versions)] if versions else []
    return table(("Argument", "Value"), rows)


def samples_told(called: str, part: dict[str, Any]) -> dict[str, int | None]:
    """How many samples a part of the data has, and what was done to how many of them."""
    done = {f"{called}: {remark}": part.get(name) or None for name, remark in REMARKS.items()}
    return {called: part.get("samples"), f"{called}: left out as bad": part.get("left_out") or None, **done}


def public_arguments(facts: Facts) -> dict[str, Any]:
    """What of a run's arguments a card is made of, without where anything lay on this machine."""
    arguments = {name: value for name, value in facts.arguments.items() if name in TRAINING_ARGUMENTS}
    if facts.arguments.get("model_name_or_path"):
        arguments["model_name_or_path"] = facts.base_model or LOCAL
    if facts.dataset or facts.arguments.get("dataset_name") in EMBEDDED:
        arguments |= {name: facts.arguments.get(name) for name in ("dataset_name", "dataset_config_name")}
    return arguments


def without_effect(facts: Facts) -> set[str]:
    """Arguments that another one overruled, or that are about something else."""
    names = {"max_length"} if is_vision(facts) else {"augment"}
    names |= {"num_train_epochs"} if facts.arguments.get("max_train_steps") else set()
    return names | ({"lora_rank"} if not facts.arguments.get("lora") else set())


def equivalence_section(facts: Facts) -> str:
    """The proof of the conversion; empty where there is none."""
    if facts.equivalence is None:
        return ""
    picture = facts.pictures.get("equivalence.png")
    after = f"\n\n![{picture}](equivalence.png)" if picture else ""
    return f"```\n{facts.equivalence}\n```{after}"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def escaped(text: str) -> str:
    """Text on one line, of which nothing is taken for markup."""
    return re.sub(r"([\\`*_~|<>&\[\]])", r"\\\1", " ".join(text.split()))
