"""Examples for a card: short programs that load the model and use it, which staging runs before anyone reads them."""

import json

from ..dimensions import input_shape, takes_spectrograms
from .facts import Facts

# The tasks with one answer for each input.
CLASSIFIERS = (
    "sequence-classification",
    "image-classification",
    "image-classification-with-teacher",
    "audio-classification",
)
# What each task's example does with `outputs`, a line each.
READ_OUT = {
    "base": ["print(outputs.last_hidden_state.shape)"],
    "masked-lm": [
        'position = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0]',
        "print(tokenizer.decode(outputs.logits[0, position].argmax(-1)))",
    ],
    "token-classification": [
        "print([model.config.id2label[index] for index in outputs.logits[0].argmax(-1).tolist()])"
    ],
    "question-answering": [
        "start, end = outputs.start_logits.argmax().item(), outputs.end_logits.argmax().item()",
        'print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))',
    ],
    **{task: ["print(model.config.id2label[outputs.logits.argmax(-1).item()])"] for task in CLASSIFIERS},
}
# Where there is no tokenizer to turn ids into words.
READ_OUT_IDS = {
    "masked-lm": ["print(outputs.logits.shape)"],
    "question-answering": ["print(outputs.start_logits.shape, outputs.end_logits.shape)"],
}
# By problem type, where that changes what a classifier's logits mean.
READ_OUT_PROBLEM = {
    "regression": ["print(outputs.logits.squeeze().tolist())"],
    "multi_label_classification": [
        "chosen = (outputs.logits[0].sigmoid() > 0.5).nonzero().flatten().tolist()",
        "print([model.config.id2label[index] for index in chosen])",
    ],
}
EXAMPLE = "The encoder reads each word in the light of all others."


def snippet(facts: Facts, repo_id: str, example: str | None, *, with_hf_ffn: bool) -> str:
    """A program that loads the model from `repo_id` and uses it.

    Args:
        facts: of the model.
        repo_id: a repository or a folder.
        example: a text to use it on; None for one of ours.
        with_hf_ffn: with this package, or with transformers alone and the code in the repository.
    """
    loader = facts.model_class.__name__ if with_hf_ffn else facts.auto_class
    # The tokenizer asks for the model's configuration, whose code is in the repository as well.
    trust = "" if with_hf_ffn else ", trust_remote_code=True"
    lines, prepare = prepare_input(facts) if is_vision(facts) else prepare_text(facts, example)
    from_transformers = sorted(lines if with_hf_ffn else [loader, *lines])
    imported = ["import torch"]
    if from_transformers:
        imported.append(f"from transformers import {', '.join(from_transformers)}")
    if with_hf_ffn:
        imported.append(f"from hf_ffn import {loader}")
    program = [
        *imported,
        "",
        f"repo = {json.dumps(repo_id)}",
        *(f"{word_of(name)} = {name}.from_pretrained(repo{trust})" for name in lines),
        f"model = {loader}.from_pretrained(repo{trust})",
        *prepare,
        "with torch.no_grad():",
        "    outputs = model(**inputs)",
        *read_out(facts),
    ]
    return "\n".join(program)


def read_out(facts: Facts) -> list[str]:
    """The lines that say what the outputs mean."""
    lines = READ_OUT[facts.task]
    if not facts.has_tokenizer:
        lines = READ_OUT_IDS.get(facts.task, lines)
    if facts.task not in CLASSIFIERS:
        return lines
    # One output without a stated problem is a score, as the loss takes it too.
    problem = facts.config.problem_type or ("regression" if facts.config.num_labels == 1 else "")
    return READ_OUT_PROBLEM.get(problem, lines)


def is_vision(facts: Facts) -> bool:
    """Whether the model takes images, or sounds as such, and no text."""
    return facts.model_class.main_input_name != "input_ids"


def word_of(name: str) -> str:
    """What a program calls its tokenizer or processor."""
    return "tokenizer" if name == "AutoTokenizer" else "processor"


def prepare_text(facts: Facts, example: str | None) -> tuple[list[str], list[str]]:
    """The classes that an example needs to read a text, and the lines that do it."""
    if not facts.has_tokenizer:
        ids = list(range(min(8, facts.config.vocab_size)))
        return [], [f'inputs = {{"input_ids": torch.tensor([{ids}])}}  # token ids; there is no tokenizer here']
    text = json.dumps(example or EXAMPLE, ensure_ascii=False)
    if facts.task == "masked-lm":
        masked = 'text = f"The capital of France is {tokenizer.mask_token}."'
        return ["AutoTokenizer"], [masked, 'inputs = tokenizer(text, return_tensors="pt")']
    if facts.task == "question-answering":
        question = f'inputs = tokenizer("What does the encoder read?", {text}, return_tensors="pt")'
        return ["AutoTokenizer"], [question]
    return ["AutoTokenizer"], [f'inputs = tokenizer({text}, return_tensors="pt")']


def prepare_input(facts: Facts) -> tuple[list[str], list[str]]:
    """The classes that an example needs to read an image or a sound, and the lines that do it."""
    shape = ", ".join(str(size) for size in input_shape(facts.model_class, facts.config))
    if takes_spectrograms(facts.model_class, facts.config):
        if not facts.has_feature_extractor:
            return [], [f'inputs = {{"input_values": torch.zeros(1, {shape})}}  # your sound as a spectrogram']
        sound = "sound = [0.0] * processor.sampling_rate  # your sound, a number for each sample"
        read = 'inputs = processor(sound, sampling_rate=processor.sampling_rate, return_tensors="pt")'
        return ["AutoFeatureExtractor"], [sound, read]
    if not facts.has_image_processor:
        return [], [f'inputs = {{"pixel_values": torch.zeros(1, {shape})}}  # your image, as it was in training']
    image = f"image = torch.zeros({shape}, dtype=torch.uint8)  # your image"
    return ["AutoImageProcessor"], [image, 'inputs = processor(image, return_tensors="pt")']
