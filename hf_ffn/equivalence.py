"""The proof that a converted model is the original: both side by side, field by field and layer by layer."""

import contextlib
import copy
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from .checkpoint_ffn import read_raw_config
from .configuration_ffn_block import NATIVE_MODEL_TYPES
from .conversion import (
    family_of_config,
    model_class_for,
    pooler_keyword,
    source_class_for,
    write_source_format,
)
from .dimensions import input_shape
from .equivalence_report import Check, EquivalenceReport
from .families import Family
from .families.family import HOW_IT_RUNS, stated
from .labels_ffn import in_order
from .loading_ffn import converted, transformers_report_silenced
from .modeling_ffn import EncoderBlock
from .registry_ffn import unknown_family
from .sentence_files import encoder_place

# Fields that say where a model comes from or what it gives out, and not what it computes.
_NOT_COMPARED = (
    "architectures",
    "chunk_size_feed_forward",
    "dtype",
    "feed_forward_memory",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "transformers_version",
    "unpad",
)

# Where the two may round differently, ours may be at most so many times as far as the original from a wider precision.
_FACTOR = 3.0

# That wider precision.
_WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float32, torch.float16: torch.float32}


@torch.no_grad()
def verify(
    source: str | os.PathLike,
    model: PreTrainedModel | None = None,
    *,
    dtypes: tuple[str, ...] = ("float32",),
    attn_implementations: tuple[str, ...] = ("eager", "sdpa"),
    seed: int = 0,
    family: str | None = None,
    **hub_kwargs: Any,
) -> EquivalenceReport:
    """Compare a converted model with its original, built from the same checkpoint by transformers' own class.

    Compared are the configuration field by field (but for how a model is run and trained), every tensor bitwise, the
    embeddings, every layer (each from the original's input to it, and from rows scaled down to a thousandth, which
    show another `layer_norm_eps`) and the outputs, with padding, and the way back into the original's format. In
    float32 every result must be bitwise equal, but for families that say why they round otherwise
    (`Family.rounding`) and originals that lack the attention back end (they are run in eager then). There, and in half
    precision, ours may be at most three times as far as the original's own result from the original's in a wider
    precision (float64, and float32 for half). So may, in every precision, the hidden states of tokens where padding is
    left out (`config.unpad`).

    Args:
        source: a folder or a Hub id of a family that converts.
        model: converted from it; None to convert it now.
        dtypes: precisions to compute in.
        attn_implementations: attention back ends to compute with.
        seed: of the random token ids or pixels.
        family: a name in `FAMILIES`, for a checkpoint that does not tell (see `FFNPreTrainedModel.from_pretrained`).
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…

    Raises:
        ValueError: `source` is of no family that converts.
    """
    hub_kwargs = encoder_place(source, hub_kwargs)
    raw_config = read_raw_config(source, {**hub_kwargs, "family": family})
    its_family = family_of_config(raw_config)
    if its_family is None:
        if raw_config.get("model_type") not in NATIVE_MODEL_TYPES:
            raise unknown_family(str(source), raw_config.get("model_type"))
        raise ValueError(f"'{source}' is one of ours already; verify takes the checkpoint that it was converted from")
    if model is None:
        model_class = model_class_for(source, family=family, **hub_kwargs)
        model = model_class.from_pretrained(source, family=family, **hub_kwargs)
    source_class = source_class_for(model, its_family)
    # What stays behind is said when ours is loaded.
    with transformers_report_silenced():
        original = source_class.from_pretrained(
            source,
            dtype=model.dtype,
            **its_family.original_keywords(raw_config),
            **pooler_keyword(model, source_class),
            **hub_kwargs,
        )

    # A folder by its whole path: "runs/x" could as well be a repository on the Hub.
    named = str(Path(source).resolve()) if os.path.isdir(source) else str(source)
    report = EquivalenceReport(named, source_class.__name__, type(model).__name__)
    expected = type(model.config)(**its_family.translate_config(dict(raw_config)))
    report.checks += compare_configs(model.config, expected)
    report.checks += compare_tensors(original, model, its_family)
    was_training, own_attention = model.training, model.config._attn_implementation
    with run_as_stated(model.config, expected):
        try:
            for dtype in dtypes:
                ours, theirs = (_in_dtype(each, getattr(torch, dtype)) for each in (model.eval(), original))
                for attention in attn_implementations:
                    ours.set_attn_implementation(attention)
                    # Older classes of transformers have but the one back end.
                    same = getattr(theirs, f"_supports_{attention}", True)
                    theirs.set_attn_implementation(attention if same else "eager")
                    bitwise = same and dtype == "float32" and not its_family.of(model.config).rounding
                    report.checks += compare_outputs(theirs, ours, its_family, f"{dtype} {attention}", seed, bitwise)
                    report.checks += compare_packed(ours, f"{dtype} {attention}", seed)
        finally:
            model.set_attn_implementation(own_attention)
            model.train(was_training)
        report.checks += compare_round_trip(original, model, its_family)
    return report


@contextlib.contextmanager
def run_as_stated(config: PreTrainedConfig, expected: PreTrainedConfig) -> Iterator[None]:
    """While it is open, the model is run as its checkpoint says, and not as was chosen since; padding is computed."""
    chosen: dict[str, Any] = {}
    for name in HOW_IT_RUNS & set(dir(config)) - {"dtype"}:
        wanted, found = "never" if name == "unpad" else stated(expected, name), stated(config, name)
        if wanted != found:
            chosen[name] = found
            setattr(config, name, wanted)
    try:
        yield
    finally:
        for name, value in chosen.items():
            setattr(config, name, value)


def compare_configs(config: PreTrainedConfig, expected: PreTrainedConfig) -> Iterator[Check]:
    """A model's fields against those that its checkpoint's config.json translates to."""
    for name in sorted(f.name for f in fields(config) if f.name not in _NOT_COMPARED):
        wanted, found = (_plain(stated(each, name)) for each in (expected, config))
        # How a model is run is its user's to choose.
        if wanted == found or name not in HOW_IT_RUNS:
            detail = "" if wanted == found else f"{wanted!r} in the original, {found!r} here"
            yield Check("config", name, not detail, detail)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def compare_tensors(original: PreTrainedModel, model: PreTrainedModel, family: Family) -> Iterator[Check]:
    """Every tensor of both, bitwise, by our names."""
    # A base model's names have no prefix, and some renamings only give the one with it or the one without.
    ours = model.state_dict()
    theirs = {}
    mapping = family.of(model.config).weight_mapping(type(model).__name__)
    for name, tensor in converted(original.state_dict(), mapping).items():
        name = next((n for n in (name, f"model.{name}", name.removeprefix("model.")) if n in ours), name)
        theirs[name] = tensor
    for name in sorted(ours.keys() | theirs.keys()):
        layer = re.search(r"encoder\.layers\.(\d+)\.", name)
        detail = _tensor_difference(theirs.get(name), ours.get(name))
        yield Check("tensor", name, not detail, detail, layer=int(layer[1]) if layer else None)


def _tensor_difference(theirs: torch.Tensor | None, ours: torch.Tensor | None) -> str:
    if theirs is None or ours is None:
        return "missing in the original" if theirs is None else "missing here"
    if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        return f"{theirs.dtype} {tuple(theirs.shape)} in the original, {ours.dtype} {tuple(ours.shape)} here"
    if torch.equal(theirs, ours.to(theirs.device)):
        return ""
    differing = (theirs != ours).sum().item()
    largest = (theirs.double() - ours.double()).abs().max().item()
    return f"{differing} of {theirs.numel()} numbers differ, by {largest:.1e} at most"


def compare_outputs(
    original: PreTrainedModel, model: PreTrainedModel, family: Family, run: str, seed: int, bitwise: bool
) -> Iterator[Check]:
    """Embeddings, every layer from the original's own input to it, and the outputs."""
    inputs = {name: tensor.to(model.device) for name, tensor in example_inputs(model, seed).items()}
    reference = None if bitwise else copy.deepcopy(original).to(_WIDER[model.dtype])
    if reference is not None and getattr(reference, "_supports_sdpa", False):
        # Written out, attention takes softmax in float32 whatever the precision.
        reference.set_attn_implementation("sdpa")
    models = [original, model] if reference is None else [original, model, reference]
    results, calls = [], []
    for each in models:
        blocks = our_blocks(each) if each is model else their_blocks(each, family)
        with recorded(blocks) as recorded_calls:
            own = family.prepare(each, inputs) if family.prepare is not None and each is not model else inputs
            # Not every original brings pixels to its own precision.
            own = {name: t.to(each.dtype) if t.is_floating_point() else t for name, t in own.items()}
            results.append(each(**own, return_dict=True))
        calls.append(recorded_calls)

    def compare(kind: str, name: str, found: list[torch.Tensor], layer: int | None = None) -> Check:
        error, ok, detail = difference(*found)
        return Check(kind, name, ok, detail, run, error, layer)

    yield compare("layer", "embeddings", [each[0].hidden_states for each in calls])
    for index, same_call in enumerate(zip(*calls, strict=True)):
        hidden_states = same_call[0].hidden_states
        # Rows of small variance show another eps, which rows of variance 1 hide in the last digits.
        found = [[each.repeat(hidden_states * scale) for scale in (1, 1e-3)] for each in same_call]
        yield compare("layer", f"layer {index}", [torch.cat(each) for each in found], index)

    for name, tensor in results[0].items():
        if isinstance(tensor, torch.Tensor) and results[1].get(name) is not None:
            yield compare("output", name, [each[name] for each in results])


def compare_packed(model: PreTrainedModel, run: str, seed: int) -> Iterator[Check]:
    """The hidden states of real tokens with padding left out, beside those with padding."""
    inputs = {name: tensor.to(model.device) for name, tensor in example_inputs(model, seed).items()}
    if "attention_mask" not in inputs:
        return
    real = inputs["attention_mask"] != 0
    wider = copy.deepcopy(model).to(_WIDER[model.dtype])
    padded, packed, exact = (
        each.base_model(**inputs, unpad=unpad, return_dict=True).last_hidden_state[real]
        for each, unpad in ((model, "never"), (model, "always"), (wider, "never"))
    )
    error, ok, detail = difference(padded, packed, exact)
    yield Check("output", "padding left out", ok, detail, run, error)


def difference(
    theirs: torch.Tensor, ours: torch.Tensor, reference: torch.Tensor | None = None
) -> tuple[float, bool, str]:
    """How far two results are from each other, whether that may be, and what to say if not.

    Args:
        theirs: the original's.
        ours: the converted model's.
        reference: the original's in a wider precision; None where the two must be equal bitwise.
    """
    error = (theirs.double() - ours.double()).abs().max().item()
    if torch.equal(theirs, ours):
        return error, True, ""
    if reference is None:
        return error, False, f"differs by {error:.1e}"
    own, our = ((each.double() - reference.double()).abs().max().item() for each in (theirs, ours))
    # Of a few numbers the original may hit some by chance, but no result is nearer than its last digit.
    own = max(own, torch.finfo(theirs.dtype).eps / 2 * reference.abs().max().item())
    ok = our <= _FACTOR * own
    return (
        error,
        ok,
        "" if ok else f"differs by {error:.1e}: {our:.1e} from the wider precision, the original {own:.1e}",
    )


@dataclass
class Call:
    """What a block was called with in a model's forward."""

    block: nn.Module
    hidden_states: torch.Tensor
    others: tuple[Any, ...]
    keywords: dict[str, Any]

    def repeat(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The block's result for other hidden states, with the same masks and positions."""
        result = self.block(hidden_states.to(self.hidden_states.dtype), *self.others, **self.keywords)
        return result[0] if isinstance(result, tuple) else result


@contextlib.contextmanager
def recorded(blocks: list[nn.Module]) -> Iterator[list[Call]]:
    """While it is open, the calls of these blocks are put into the list that it gives."""
    calls: list[Call] = []

    def record(block: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        calls.append(Call(block, arguments[0], arguments[1:], keywords))

    hooks = [block.register_forward_pre_hook(record, with_kwargs=True) for block in blocks]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def example_inputs(model: PreTrainedModel, seed: int) -> dict[str, torch.Tensor]:
    """Random images or spectrograms, or random token ids in sequences of several lengths, padded left and right."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    if model.main_input_name != "input_ids":
        return {model.main_input_name: torch.randn(2, *input_shape(type(model), config), generator=generator)}
    # Long enough to reach beyond the window of local attention
    length = min(24 + (config.sliding_window or 0), config.longest_sequence or config.max_position_embeddings)
    input_ids = torch.randint(0, config.vocab_size, (4, length), generator=generator)
    if config.token_dropout:
        input_ids[:, ::4] = config.mask_token_id
    # Not more padding than a window: of a token that sees nothing else, back ends differ in what it gets.
    most = config.sliding_window or length
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, max(length // 2, length - most) :] = 0
    attention_mask[2, : min(length // 3, most)] = 0
    attention_mask[3, max(1, length - most) :] = 0
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
    if config.type_vocab_size:
        inputs["token_type_ids"] = torch.zeros_like(input_ids)
        inputs["token_type_ids"][:, length // 2 :] = config.type_vocab_size - 1
    return inputs


def our_blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The encoder blocks of one of our models."""
    return [module for module in model.modules() if isinstance(module, EncoderBlock)]


def their_blocks(original: PreTrainedModel, family: Family) -> list[nn.Module]:
    """The encoder blocks of the family's own model."""
    path = re.compile(rf"{family.layers}\.\d+")
    return [module for name, module in original.base_model.named_modules() if path.fullmatch(name)]


def compare_round_trip(original: PreTrainedModel, model: PreTrainedModel, family: Family) -> Iterator[Check]:
    """Write the model in the original's format, load that with the original's class, and compare the two."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            write_source_format(model, Path(folder))
        except ValueError as error:
            yield Check("round trip", "export", False, str(error))
            return
        again, info = type(original).from_pretrained(
            folder,
            dtype=model.dtype,
            output_loading_info=True,
            **family.original_keywords(read_raw_config(folder, {"family": family.name})),
            **pooler_keyword(model, type(original)),
        )
    left = {key: sorted(map(str, value)) for key, value in info.items() if value}
    yield Check("round trip", "nothing missing or unexpected", not left, str(left) if left else "")
    before, after = original.state_dict(), again.state_dict()
    changed = [n for n in sorted(before.keys() | after.keys()) if _tensor_difference(before.get(n), after.get(n))]
    yield Check("round trip", "tensors", not changed, f"changed: {', '.join(changed[:4])}" if changed else "")
    skip = {*_NOT_COMPARED, "torch_dtype", "_name_or_path", "model_type"}
    # Of labels the rows' names count; config.json may number them in its own way, and state one direction alone.
    before, after = (
        {**each.to_dict(), "id2label": in_order(each.id2label), "label2id": None}
        for each in (original.config, again.config)
    )
    changed = [n for n in sorted(before.keys() | after.keys()) if n not in skip and before.get(n) != after.get(n)]
    yield Check("round trip", "configuration", not changed, f"changed: {', '.join(changed)}" if changed else "")


def _in_dtype(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    return model if model.dtype == dtype else copy.deepcopy(model).to(dtype)


__all__ = ["Check", "EquivalenceReport", "verify"]
