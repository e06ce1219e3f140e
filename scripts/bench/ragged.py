"""A text encoder of BERT-base's size, inference: ragged batches, one sequence, and batches without padding."""

import functools
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel

from hf_ffn import FFNTextModel

from . import peers
from .measure import Apart, Contender, Section, Timing, compare
from .products import bare

TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05, "int8": 0.15}


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """Short and longer ragged text, one sequence of 25 tokens, and even lengths."""
    share = timing.part(4)
    batches = {
        "ragged, short": ragged_lengths(8 if quick else 16, mean=25, longest=68),
        "ragged, longer": ragged_lengths(4 if quick else 5, mean=120, longest=394),
        "one sequence of 25": [25],
        "even, 8 of 64": [64] * (2 if quick else 8),
    }
    with tempfile.TemporaryDirectory() as folder:
        bench = TextBench(small() if quick else base(), Path(folder))
        for title, lengths in batches.items():
            yield bench.section(title, lengths, share)


def base() -> BertConfig:
    """BERT-base, with a small vocabulary: embeddings take no time but when peers' files are made."""
    return BertConfig(vocab_size=1000)


def small() -> BertConfig:
    """For quick runs."""
    return BertConfig(
        vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )


def ragged_lengths(count: int, mean: int, longest: int) -> list[int]:
    """Lengths as they occur: many short, few long (log-normal), the longest given."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.exp(0.7 * torch.randn(count, generator=generator))
    lengths = (raw / raw.mean() * mean).round().clamp(3, longest).int().tolist()
    return [longest, *lengths[1:]]


class Batch:
    """Sequences, padded together.

    Args:
        lengths: of the sequences.
        vocab_size: ids are drawn below it.
    """

    def __init__(self, lengths: list[int], vocab_size: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.sequences = [torch.randint(5, vocab_size, (length,), generator=generator) for length in lengths]
        self.ids, self.mask = self.padded(range(len(lengths)))
        self.real = self.mask == 1

    def padded(self, members: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask of some sequences, `(batch, longest)` each."""
        ids = nn.utils.rnn.pad_sequence([self.sequences[index] for index in members], batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(self.sequences[i]) for i in members], batch_first=True)
        return ids, mask

    def tokens(self, output: torch.Tensor) -> torch.Tensor:
        """The real tokens of an output of all sequences, `(tokens, hidden_size)`."""
        return output[self.real]


class Groups:
    """A batch's sequences sorted by length, in so many groups of equal size, each padded for itself."""

    def __init__(self, batch: Batch, count: int) -> None:
        order = sorted(range(len(batch.sequences)), key=lambda index: len(batch.sequences[index]))
        size = math.ceil(len(order) / count)
        self.sequences = batch.sequences
        self.order = [order[start : start + size] for start in range(0, len(order), size)]
        self.padded = [batch.padded(group) for group in self.order]

    def tokens(self, outputs: list[torch.Tensor]) -> torch.Tensor:
        """The real tokens of the groups' outputs, `(tokens, hidden_size)`, in the order of the sequences."""
        of_sequence = {
            index: output[row, : len(self.sequences[index])]
            for group, output in zip(self.order, outputs, strict=True)
            for row, index in enumerate(group)
        }
        return torch.cat([of_sequence[index] for index in range(len(self.sequences))])


class OnlyStates(nn.Module):
    """A model as a function of ids and mask to the last hidden states, as exporters want it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids, attention_mask=attention_mask).last_hidden_state


class TextBench:
    """The contenders, each prepared once for all batches.

    Args:
        config: of BERT.
        folder: for what peers want as files.
    """

    def __init__(self, config: BertConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        torch.manual_seed(0)
        self.theirs = BertModel(config, add_pooling_layer=False).eval()
        with torch.no_grad():
            for parameter in self.theirs.parameters():
                # At initialisation, errors would hide: each block would hardly change its input.
                if parameter.dim() > 1:
                    parameter.mul_(55 / config.hidden_size**0.5)
        self.theirs.save_pretrained(folder / "source")

    @functools.cached_property
    def ours(self) -> Any:
        model = FFNTextModel.from_pretrained(self.folder / "source").eval()
        # In memory, as the original is: mapped files may be dropped while others are measured, and read again.
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
        return model

    @functools.cache  # noqa: B019 - one bench a process
    def prepared(self, dtype: str) -> Any:
        return peers.optimised(FFNTextModel.from_pretrained(self.folder / "source").eval(), dtype)

    @functools.cached_property
    def theirs_in_half(self) -> Any:
        return BertModel.from_pretrained(self.folder / "source", add_pooling_layer=False, dtype=torch.bfloat16).eval()

    @functools.cached_property
    def exportable(self) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
        model = BertModel.from_pretrained(
            self.folder / "source", add_pooling_layer=False, attn_implementation="eager"
        ).eval()
        example = torch.ones(2, 9, dtype=torch.long)
        example[0, 5:] = 0
        return OnlyStates(model).eval(), (example * 7, example)

    @functools.cached_property
    def fused_onnx(self) -> Path:
        model, example = self.exportable
        path = peers.export_onnx(model, example, self.folder / "model.onnx", ("batch", "sequence"))
        return peers.bert_onnx(path, self.config.num_attention_heads, self.config.hidden_size)

    @functools.cache  # noqa: B019
    def onnx(self, int8: bool) -> Callable[..., torch.Tensor]:
        return peers.onnx_session(peers.int8_onnx(self.fused_onnx) if int8 else self.fused_onnx)

    @functools.cached_property
    def openvino_graph(self) -> Any:
        _, example = self.exportable
        return peers.openvino_graph(OnlyStates(self.theirs), example)

    @functools.cache  # noqa: B019
    def openvino(self, dtype: str) -> Callable[..., torch.Tensor]:
        return peers.openvino_compiled(self.openvino_graph, dtype)

    @functools.cache  # noqa: B019
    def ctranslate2(self, compute_type: str) -> Apart:
        return Apart(peers.ctranslate2_encoder, peers.ctranslate2_files(self.theirs, self.folder), compute_type)

    def section(self, title: str, lengths: list[int], timing: Timing, only: tuple[str, ...] = ()) -> Section:
        """One table, of all contenders or `only` some; ratios refer to the first, transformers padded among all."""
        batch = Batch(lengths, self.config.vocab_size)
        by_name = {each.name: each for each in self.contenders(batch)}
        contenders = [by_name[name] for name in only or by_name]
        alone = Groups(batch, min(8, len(lengths)))
        reference = alone.tokens(on_groups(states_of(self.theirs), alone)())
        section = compare(f"encoder of BERT-base's size, {title}", contenders, reference, timing)
        times = batch.ids.numel() / sum(lengths)
        section.notes.append(f"{sum(lengths)} tokens in {len(lengths)} sequences; padded {times:.2f} times as many")
        return section

    def contenders(self, batch: Batch) -> list[Contender]:
        """All of them, on a batch."""
        lengths = [len(each) for each in batch.sequences]
        ragged = len(set(lengths)) > 1

        def padded(name: str, make: Callable[[], Callable[..., torch.Tensor]], dtype: str) -> Contender:
            return Contender(name, lambda: on_padded(make(), batch), TOLERANCES[dtype], dtype, batch.tokens)

        def ordered(name: str, make: Callable[[], Callable[..., torch.Tensor]], dtype: str) -> Contender:
            """Sorted by length and padded in two groups, where that saves padding."""
            if not ragged:
                return padded(name, make, dtype)
            name, groups = f"{name}, sorted in 2", Groups(batch, 2)
            return Contender(name, lambda: on_groups(make(), groups), TOLERANCES[dtype], dtype, groups.tokens)

        def without_padding(name: str, compute_type: str) -> Contender:
            ids = [each.tolist() for each in batch.sequences]
            return Contender(
                name,
                lambda: self.ctranslate2(compute_type).on(ids),
                TOLERANCES[compute_type],
                read=lambda states: batch.tokens(torch.from_numpy(states)),
            )

        def bound(name: str, dtype: str) -> Contender:
            make = functools.partial(bare_products, self.config, sum(lengths), getattr(torch, dtype))
            return Contender(name, make, precision=dtype)

        contenders = [
            padded("transformers", lambda: states_of(self.theirs), "float32"),
            bound("bound: bare products", "float32"),
            bound("bound, bfloat16", "bfloat16"),
            padded("transformers, bfloat16", lambda: states_of(self.theirs_in_half), "bfloat16"),
            padded("hf_ffn", lambda: states_of(self.ours), "float32"),
            padded("hf_ffn, optimised", lambda: states_of(self.prepared("float32")), "float32"),
            padded("hf_ffn, optimised, bfloat16", lambda: states_of(self.prepared("bfloat16")), "bfloat16"),
            padded("hf_ffn, optimised, int8", lambda: states_of(self.prepared("int8")), "int8"),
            ordered("OpenVINO", lambda: self.openvino("float32"), "float32"),
            ordered("OpenVINO, bfloat16", lambda: self.openvino("bfloat16"), "bfloat16"),
            ordered("ONNX Runtime", lambda: self.onnx(False), "float32"),
            ordered("ONNX Runtime, int8", lambda: self.onnx(True), "int8"),
            without_padding("CTranslate2", "float32"),
            without_padding("CTranslate2, int8", "int8"),
        ]
        if ragged:
            contenders.append(ordered("transformers", lambda: states_of(self.theirs), "float32"))
        return contenders


def states_of(model: Any) -> Callable[..., torch.Tensor]:
    def run(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return model(ids, attention_mask=mask).last_hidden_state.float()

    return run


def on_padded(model: Callable[..., torch.Tensor], batch: Batch) -> Callable[[], torch.Tensor]:
    return lambda: model(batch.ids, batch.mask)


def on_groups(model: Callable[..., torch.Tensor], groups: Groups) -> Callable[[], list[torch.Tensor]]:
    return lambda: [model(*group) for group in groups.padded]


def bare_products(config: Any, tokens: int, dtype: torch.dtype) -> Callable[[], None]:
    """The matrix products of the blocks for the real tokens, and nothing else."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    shapes = [(3 * hidden, hidden), (hidden, hidden), (intermediate, hidden), (hidden, intermediate)]
    layers = [[torch.randn(shape).to(dtype) for shape in shapes] for _ in range(config.num_hidden_layers)]
    inputs = [torch.randn(tokens, shape[1]).to(dtype) for shape in shapes]
    return bare(pair for layer in layers for pair in zip(inputs, layer, strict=True))
