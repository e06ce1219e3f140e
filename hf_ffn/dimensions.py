"""How large a model is and what it computes: parameters, operations and bytes, from its configuration alone."""

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedConfig, PreTrainedModel

from .configuration_ffn import height_and_width
from .modeling_ffn import EncoderBlock


@dataclass(frozen=True)
class Dimensions:
    """Sizes of a model.

    Attributes:
        parameters: all, tied ones once.
        feed_forward_parameters: those of the feed-forward blocks.
        encoder_parameters: those of the encoder's blocks, feed-forward blocks included.
        forward_flops: floating-point operations of one forward pass over one input, a multiplication and an addition
            counted as two; matrix products and attention, which are all but a few per cent.
        input_size: tokens of that input, or (height, width) of the image, or (mel bins, frames) of the spectrogram.
        weight_bytes: of the parameters in the configuration's dtype.
    """

    parameters: int
    feed_forward_parameters: int
    encoder_parameters: int
    forward_flops: int
    input_size: int | tuple[int, int]
    weight_bytes: int


def dimensions(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, sequence_length: int | None = None
) -> Dimensions:
    """Measure a model without making it: on torch's meta device, with torch's own counter of operations.

    Args:
        model_class: one of ours.
        config: its configuration.
        sequence_length: tokens of the text to count operations for; None for the longest, at most 512.
    """
    with torch.device("meta"):
        model = model_class(config).eval()
        inputs, input_size = one_input(model, sequence_length)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(**inputs)
    layers = model.base_model.encoder.layers
    blocks = [module for module in layers.modules() if isinstance(module, EncoderBlock)]
    parameters = model.num_parameters()
    return Dimensions(
        parameters=parameters,
        feed_forward_parameters=sum(p.numel() for block in blocks for p in block.ffn.parameters()),
        encoder_parameters=sum(p.numel() for p in layers.parameters()),
        forward_flops=counter.get_total_flops(),
        input_size=input_size,
        weight_bytes=parameters * (config.dtype or torch.float32).itemsize,
    )


def takes_spectrograms(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> bool:
    """Whether a model's input is a spectrogram: its class takes nothing else, or the configuration says so."""
    return model_class.main_input_name == "input_values" or getattr(config, "spectrogram_input", False)


def input_shape(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> tuple[int, ...]:
    """Of one input that is no text: an image (channels, height, width), or a spectrogram (frames, mel bins)."""
    height, width = height_and_width(config.image_size)
    return (width, height) if takes_spectrograms(model_class, config) else (config.num_channels, height, width)


def one_input(
    model: PreTrainedModel, sequence_length: int | None
) -> tuple[dict[str, torch.Tensor], int | tuple[int, int]]:
    """One input of a model on the present device, and its size."""
    if model.main_input_name != "input_ids":
        shape = input_shape(type(model), model.config)
        return {model.main_input_name: torch.zeros(1, *shape)}, height_and_width(model.config.image_size)
    length = sequence_length or min(512, model.config.longest_sequence or model.config.max_position_embeddings)
    # As vectors, for ids would be looked at, and on the meta device there is nothing to see.
    return {"inputs_embeds": torch.zeros(1, length, model.get_input_embeddings().embedding_dim)}, length
