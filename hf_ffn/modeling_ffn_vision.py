"""The image encoder and its heads.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput, SequenceClassifierOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_ffn import FFNVisionConfig
from .grids_ffn import GridRotaryEmbedding, WindowPositionBias
from .modeling_ffn import Encoder, FFNPreTrainedModel, classification_loss
from .patches_ffn import FFNPatchEmbeddings, FFNVisionEmbeddings
from .pooling_ffn import AttentionPooling, VisionPooler, pool_tokens


class FFNVisionPreTrainedModel(FFNPreTrainedModel):
    """What the vision models share."""

    config: FFNVisionConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _no_split_modules = ["FFNVisionEmbeddings", "EncoderBlock"]

    def freeze_unused(self) -> None:
        """Take the mask token out of training: only the encoder by itself takes masks."""
        embeddings = self.base_model.embeddings
        if self.base_model is not self and embeddings.mask_token is not None:
            embeddings.mask_token.requires_grad_(False)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        std = self.config.initializer_range
        if isinstance(module, FFNVisionEmbeddings):
            for name in ("cls_token", "distillation_token", "register_tokens", "position_embeddings"):
                vectors = getattr(module, name)
                if vectors is not None:
                    init.trunc_normal_(vectors, mean=0.0, std=std, a=-2 * std, b=2 * std)
            if module.mask_token is not None:
                init.zeros_(module.mask_token)
        elif isinstance(module, AttentionPooling):
            init.trunc_normal_(module.query, mean=0.0, std=std, a=-2 * std, b=2 * std)
        elif isinstance(module, WindowPositionBias):
            init.zeros_(module.table)


class FFNVisionModel(FFNVisionPreTrainedModel):
    """The image encoder without a head.

    Args:
        config: an `FFNVisionConfig`.
        add_pooling_layer: whether to pool (heads that do not use it leave it out). A checkpoint that holds no pooler
            loads without one: `pooler_output` is then None.
    """

    _new_head_modules = ("pooler", "embeddings.mask_token")

    def __init__(self, config: FFNVisionConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = FFNVisionEmbeddings(config)
        self.rotary = GridRotaryEmbedding(config) if config.position_embedding_type == "rotary" else None
        self.window_bias = WindowPositionBias(config) if config.use_shared_relative_position_bias else None
        self.layer_window_biases = (
            nn.ModuleList([WindowPositionBias(config) for _ in range(config.num_hidden_layers)])
            if config.use_relative_position_bias
            else None
        )
        self.encoder = Encoder(config)
        self.pooler = VisionPooler(config) if add_pooling_layer and config.add_pooling_layer else None
        if config.spectrogram_input:
            self.main_input_name = "input_values"
        self.post_init()

    def get_input_embeddings(self) -> FFNPatchEmbeddings:
        return self.embeddings.patch_embeddings

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    def forward(
        self,
        pixel_values: torch.Tensor | None = None,
        interpolate_pos_encoding: bool = False,
        bool_masked_pos: torch.Tensor | None = None,
        input_values: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Encode images `(batch, channels, height, width)` to `(batch, tokens, hidden_size)`.

        The tokens are the class, distillation and register tokens that the configuration has, and the patches in
        reading order.

        Args:
            pixel_values: normalised pixels, as the checkpoint's image processor makes them. With
                `config.spectrogram_input`, `input_values` are taken in this place too.
            interpolate_pos_encoding: take images of another size than `config.image_size`, and interpolate the
                positions for them. Without learnt positions, or with `config.interpolate_pos_encoding`, any size is
                taken.
            bool_masked_pos: `(batch, patches)`, True where the mask token stands in for a patch
                (`config.use_mask_token`).
            input_values: spectrograms `(batch, frames, mel bins)` in place of images, as a feature extractor makes
                them; `(batch, 1, mel bins, frames)` as images.
            attention_mask: not used, for no patch is padding; processors of larger models give one.
        """
        pixel_values = self.as_images(pixel_values, input_values)
        # Image processors give float32 whatever the model's precision.
        pixel_values = pixel_values.to(self.embeddings.patch_embeddings.projection.weight.dtype)
        hidden_states = self.embeddings(pixel_values, interpolate_pos_encoding, bool_masked_pos)
        grid_size = self.embeddings.patch_embeddings.grid_of(pixel_values)
        rotary = self.rotary(hidden_states, grid_size) if self.rotary is not None else None
        hidden_states = self.encoder(
            hidden_states, position_embeddings=rotary, position_bias=self.position_bias(grid_size), **kwargs
        )
        pooled = self.pooler(hidden_states) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

    def as_images(self, pixel_values: torch.Tensor | None, input_values: torch.Tensor | None) -> torch.Tensor:
        """What was given, as images `(batch, channels, height, width)`; see `forward`."""
        if self.config.spectrogram_input and pixel_values is not None and pixel_values.dim() == 3:
            pixel_values, input_values = input_values, pixel_values
        if input_values is None and pixel_values is not None:
            return pixel_values
        if input_values is None or pixel_values is not None:
            raise ValueError(f"{type(self).__name__} takes one of pixel_values and input_values")
        if input_values.dim() != 3:
            raise ValueError(f"input_values of shape {tuple(input_values.shape)} must be (batch, frames, mel bins)")
        # (batch, frames, mel bins) -> (batch, 1, mel bins, frames)
        return input_values.transpose(1, 2).unsqueeze(1)

    def position_bias(self, grid_size: tuple[int, int]) -> torch.Tensor | list[torch.Tensor] | None:
        """What is added to attention scores: one bias for all blocks, a list with one for each, or None for none."""
        shared = self.window_bias(grid_size) if self.window_bias is not None else None
        if self.layer_window_biases is None:
            return shared
        own = [bias(grid_size) for bias in self.layer_window_biases]
        return own if shared is None else [each + shared for each in own]


class FFNForImageClassification(FFNVisionPreTrainedModel):
    """The image encoder with a classifier on what `config.classifier_pooling` says."""

    _new_head_modules = ("classifier", "model.pooler", "model.embeddings.mask_token")

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.pooling = config.classifier_pooling
        self.model = FFNVisionModel(config, add_pooling_layer=self.pooling == "pooler" or config.keep_pooler)
        self.classifier = nn.Linear(config.classifier_input_size, config.num_labels)
        self.post_init()
        self.freeze_unused()

    def freeze_unused(self) -> None:
        super().freeze_unused()
        if self.pooling != "pooler" and self.model.pooler is not None:
            self.model.pooler.requires_grad_(False)

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
        outputs = self.model(
            pixel_values, interpolate_pos_encoding=interpolate_pos_encoding, return_dict=True, **kwargs
        )
        if self.pooling == "pooler":
            pooled = outputs.pooler_output
        else:
            pooled = pool_tokens(outputs.last_hidden_state, self.pooling, self.config.num_prefix_tokens)
        logits = self.classifier(pooled)
        loss = classification_loss(self, labels, logits, **kwargs) if labels is not None else None
        return ImageClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


@dataclass
class DistilledClassifierOutput(ImageClassifierOutput):
    """An `ImageClassifierOutput` with the two logits `(batch, num_labels)` whose mean `logits` is."""

    cls_logits: torch.Tensor | None = None
    distillation_logits: torch.Tensor | None = None


class FFNForImageClassificationWithTeacher(FFNVisionPreTrainedModel):
    """The image encoder with a classifier on the class token and one on the distillation token (DeiT).

    Logits are the mean of the two ([Touvron et al. 2020](https://huggingface.co/papers/2012.12877), section 4). The
    second was trained to agree with a teacher, which has no part here: labels train the mean.
    """

    _new_head_modules = ("cls_classifier", "distillation_classifier", "model.embeddings.mask_token")
    _label_modules = ("cls_classifier", "distillation_classifier")

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__(config)
        if not (config.use_cls_token and config.use_distillation_token):
            raise ValueError(f"{type(self).__name__} needs use_cls_token=True and use_distillation_token=True")
        self.num_labels = config.num_labels
        self.model = FFNVisionModel(config, add_pooling_layer=False)
        self.cls_classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.distillation_classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()
        self.freeze_unused()

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        interpolate_pos_encoding: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DistilledClassifierOutput:
        """Classify images: logits `(batch, num_labels)`; arguments as in `FFNForImageClassification.forward`."""
        outputs = self.model(
            pixel_values, interpolate_pos_encoding=interpolate_pos_encoding, return_dict=True, **kwargs
        )
        cls_logits = self.cls_classifier(outputs.last_hidden_state[:, 0])
        distillation_logits = self.distillation_classifier(outputs.last_hidden_state[:, 1])
        logits = (cls_logits + distillation_logits) / 2
        loss = classification_loss(self, labels, logits, **kwargs) if labels is not None else None
        return DistilledClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            cls_logits=cls_logits,
            distillation_logits=distillation_logits,
        )


class FFNForAudioClassification(FFNVisionPreTrainedModel):
    """The image encoder on spectrograms, with LayerNorm and a classifier on the pooled output (AST).

    [Gong et al. 2021](https://huggingface.co/papers/2104.01778). A spectrogram is an image of one channel, as high as
    there are mel bins and as wide as there are frames: that is how `FFNVisionModel` takes it.
    """

    main_input_name = "input_values"
    input_modalities = ("audio",)
    _new_head_modules = ("pooled_norm", "classifier", "model.pooler", "model.embeddings.mask_token")

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = FFNVisionModel(config)
        self.pooled_norm = nn.LayerNorm(config.pooled_size, eps=config.layer_norm_eps)
        self.classifier = nn.Linear(config.pooled_size, config.num_labels)
        self.post_init()
        self.freeze_unused()

    @can_return_tuple
    def forward(
        self,
        input_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Classify spectrograms `(batch, frames, mel bins)`: logits `(batch, num_labels)`.

        Args:
            input_values: as the checkpoint's feature extractor makes them.
            labels: as in `FFNForImageClassification.forward`.
        """
        outputs = self.model(input_values=input_values, return_dict=True, **kwargs)
        logits = self.classifier(self.pooled_norm(outputs.pooler_output))
        loss = classification_loss(self, labels, logits, **kwargs) if labels is not None else None
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


FFNVisionModel.register_for_auto_class("AutoModel")
FFNForImageClassification.register_for_auto_class("AutoModelForImageClassification")
FFNForImageClassificationWithTeacher.register_for_auto_class("AutoModelForImageClassification")
FFNForAudioClassification.register_for_auto_class("AutoModelForAudioClassification")

__all__ = [
    "FFNForAudioClassification",
    "FFNForImageClassification",
    "FFNForImageClassificationWithTeacher",
    "FFNVisionModel",
    "FFNVisionPreTrainedModel",
]
