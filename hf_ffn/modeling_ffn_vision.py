"""The image encoder and its head.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_ffn import FFNVisionConfig, height_and_width
from .modeling_ffn import Encoder, FFNPreTrainedModel, Pooler, classification_loss


class FFNPatchEmbeddings(nn.Module):
    """Cuts an image into patches and projects each to a vector."""

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.num_channels = config.num_channels
        patch_size = height_and_width(config.patch_size)
        self.projection = nn.Conv2d(config.num_channels, config.hidden_size, kernel_size=patch_size, stride=patch_size)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Map `(batch, channels, height, width)` to `(batch, hidden_size, down, across)`."""
        if pixel_values.dim() != 4 or pixel_values.shape[1] != self.num_channels:
            raise ValueError(
                f"pixel_values of shape {tuple(pixel_values.shape)} must be (batch, channels, height, width) with "
                f"num_channels={self.num_channels}"
            )
        height, width = pixel_values.shape[-2:]
        patch_height, patch_width = self.projection.kernel_size
        if height < patch_height or width < patch_width:
            raise ValueError(f"An image of {height}x{width} is smaller than one patch of {patch_height}x{patch_width}")
        return self.projection(pixel_values)


class FFNVisionEmbeddings(nn.Module):
    """Patches, with a class token before them and learnt positions added."""

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.image_size = height_and_width(config.image_size)
        self.grid_size = config.grid_size
        self.patch_embeddings = FFNPatchEmbeddings(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        num_patches = self.grid_size[0] * self.grid_size[1]
        self.position_embeddings = nn.Parameter(torch.zeros(1, num_patches + 1, config.hidden_size))
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, pixel_values: torch.Tensor, interpolate_pos_encoding: bool = False) -> torch.Tensor:
        """Map `(batch, channels, height, width)` to `(batch, 1 + patches, hidden_size)`."""
        image_size = tuple(pixel_values.shape[-2:])
        if pixel_values.dim() == 4 and not interpolate_pos_encoding and image_size != self.image_size:
            raise ValueError(
                f"An image of {image_size[0]}x{image_size[1]} pixels does not match "
                f"image_size={self.image_size[0]}x{self.image_size[1]}: resize it, or pass "
                f"interpolate_pos_encoding=True"
            )
        patches = self.patch_embeddings(pixel_values)
        grid_size = (patches.shape[-2], patches.shape[-1])
        # (batch, hidden_size, down, across) -> (batch, patches, hidden_size)
        patches = patches.flatten(2).transpose(1, 2)
        tokens = torch.cat((self.cls_token.expand(patches.shape[0], -1, -1), patches), dim=1)
        return self.dropout(tokens + self.positions_for(grid_size))

    def positions_for(self, grid_size: tuple[int, int]) -> torch.Tensor:
        """Positions for a grid of patches: the learnt ones, interpolated bicubically where the grid is another.

        Interpolated positions are a starting point for fine-tuning, not as good as trained ones
        ([Dosovitskiy et al. 2020](https://huggingface.co/papers/2010.11929), section 3.2).
        """
        if grid_size == self.grid_size:
            return self.position_embeddings
        class_position, patch_positions = self.position_embeddings[:, :1], self.position_embeddings[:, 1:]
        # (1, patches, hidden_size) -> (1, hidden_size, down, across), and back
        patch_positions = patch_positions.unflatten(1, self.grid_size).permute(0, 3, 1, 2)
        patch_positions = nn.functional.interpolate(
            patch_positions, size=grid_size, mode="bicubic", align_corners=False
        )
        return torch.cat((class_position, patch_positions.flatten(2).transpose(1, 2)), dim=1)


class FFNVisionPreTrainedModel(FFNPreTrainedModel):
    """What the vision models share."""

    config: FFNVisionConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _no_split_modules = ["FFNVisionEmbeddings", "EncoderBlock"]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, FFNVisionEmbeddings):
            std = self.config.initializer_range
            init.trunc_normal_(module.cls_token, mean=0.0, std=std, a=-2 * std, b=2 * std)
            init.trunc_normal_(module.position_embeddings, mean=0.0, std=std, a=-2 * std, b=2 * std)


class FFNVisionModel(FFNVisionPreTrainedModel):
    """The image encoder without a head.

    Args:
        config: an `FFNVisionConfig`.
        add_pooling_layer: whether to pool the class token (heads that do not use it leave it out). A checkpoint
            that holds no pooler loads without one: `pooler_output` is then None.
    """

    _new_head_modules = ("pooler",)

    def __init__(self, config: FFNVisionConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = FFNVisionEmbeddings(config)
        self.encoder = Encoder(config)
        pooler_size = config.pooler_output_size or config.hidden_size
        self.pooler = Pooler(config.hidden_size, pooler_size, config.pooler_act) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> FFNPatchEmbeddings:
        return self.embeddings.patch_embeddings

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    def forward(
        self,
        pixel_values: torch.Tensor,
        interpolate_pos_encoding: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Encode images `(batch, channels, height, width)` to `(batch, 1 + patches, hidden_size)`.

        Args:
            pixel_values: normalised pixels, as the checkpoint's image processor makes them.
            interpolate_pos_encoding: take images of another size than `config.image_size`, and interpolate the
                positions for them.
        """
        # Image processors give float32 whatever the model's precision.
        pixel_values = pixel_values.to(self.embeddings.patch_embeddings.projection.weight.dtype)
        hidden_states = self.embeddings(pixel_values, interpolate_pos_encoding)
        hidden_states = self.encoder(hidden_states, **kwargs)
        pooled = self.pooler(hidden_states) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


class FFNForImageClassification(FFNVisionPreTrainedModel):
    """The image encoder with a classifier on the class token."""

    _new_head_modules = ("classifier",)

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = FFNVisionModel(config, add_pooling_layer=False)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        interpolate_pos_encoding: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ImageClassifierOutput:
        """Classify images: logits `(batch, num_labels)`; inputs as in `FFNVisionModel.forward`.

        Args:
            labels: class ids `(batch,)`; floats `(batch,)` for regression (one label); floats
                `(batch, num_labels)` for several labels at once. `config.problem_type` says which, or the labels do.
        """
        outputs = self.model(pixel_values, interpolate_pos_encoding=interpolate_pos_encoding, **kwargs)
        logits = self.classifier(outputs.last_hidden_state[:, 0])
        loss = classification_loss(self, labels, logits, **kwargs) if labels is not None else None
        return ImageClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


FFNVisionModel.register_for_auto_class("AutoModel")
FFNForImageClassification.register_for_auto_class("AutoModelForImageClassification")

__all__ = ["FFNForImageClassification", "FFNVisionModel", "FFNVisionPreTrainedModel"]
