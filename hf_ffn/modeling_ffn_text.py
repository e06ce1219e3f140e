"""The text encoder and its heads.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, is_tracing
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_ffn import FFNTextConfig
from .embeddings_ffn_text import FFNTextEmbeddings
from .heads_ffn_text import ContactHead, MaskedLMHead, classifier_dropout, pooled, sequence_head, token_head
from .modeling_ffn import Encoder, FFNPreTrainedModel, Pooler, classification_loss
from .packing_ffn import Packing, packing_for
from .positions_ffn import RotaryEmbedding, inverse_frequencies


class FFNTextPreTrainedModel(FFNPreTrainedModel):
    """What the text models share."""

    config: FFNTextConfig
    _no_split_modules = ["FFNTextEmbeddings", "EncoderBlock"]
    _computed_buffers = ("rotary_embeddings.inv_freq", "rotary_embeddings.local_inv_freq")

    def freeze_unused(self) -> None:
        super().freeze_unused()
        for module in self.modules():
            if isinstance(module, (ContactHead, MaskedLMHead)):
                module.freeze_unused()

    def pack_first(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        kwargs: Any,
        labels: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        """What a head that must know of the packing asks of the encoder: `kwargs`, with `packing` decided on."""
        inputs = input_ids if input_ids is not None else inputs_embeds
        packing = None if inputs is None else self.base_model.packing_of(inputs, attention_mask, kwargs, labels)
        return {**kwargs, "packing": packing, "unpad": "never" if packing is None else "always"}

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MaskedLMHead) and module.bias is not None:
            init.zeros_(module.bias)
        elif isinstance(module, RotaryEmbedding):
            for name, theta in module.thetas.items():
                init.copy_(getattr(module, name), inverse_frequencies(theta, module.head_dim))


class FFNTextModel(FFNTextPreTrainedModel):
    """The text encoder without a head.

    Args:
        config: an `FFNTextConfig`.
        add_pooling_layer: whether to pool the first token (heads that do not use it leave it out). A checkpoint
            that holds no pooler loads without one: `pooler_output` is then None.
    """

    _new_head_modules = ("pooler",)

    def __init__(self, config: FFNTextConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = FFNTextEmbeddings(config)
        self.rotary_embeddings = RotaryEmbedding(config) if config.position_embedding_type == "rotary" else None
        self.encoder = Encoder(config)
        has_pooler = add_pooling_layer and config.add_pooling_layer
        self.pooler = Pooler(config.hidden_size, config.hidden_size, "tanh") if has_pooler else None
        self.contact_head = ContactHead(config) if config.contact_head else None
        # A head that reads the first place without a pooler says so here.
        self.first_place_is_read = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.word_embeddings = value

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        task_type_ids: torch.Tensor | None = None,
        unpad: str | None = None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Encode `(batch, sequence)` ids to `(batch, sequence, hidden_size)`.

        Args:
            input_ids: token ids; either these or `inputs_embeds`.
            attention_mask: 1 for a token, 0 for padding, `(batch, sequence)`.
            token_type_ids: segment ids; zeros where left out.
            position_ids: positions; 0, 1, 2… where left out (see `config.positions_after_padding`).
            inputs_embeds: `(batch, sequence, embedding_size)` in place of `input_ids`.
            task_type_ids: ids of tasks, for `config.use_task_id`; zeros where left out.
            unpad: in place of `config.unpad`, for this call.
            packing: of this batch, where a head has decided on it already (see `packing_of`).
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Specify exactly one of input_ids and inputs_embeds")
        if input_ids is not None:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)

        if inputs_embeds is None:
            assert input_ids is not None
            shape, device = input_ids.shape, input_ids.device
        else:
            shape, device = inputs_embeds.shape[:2], inputs_embeds.device
        if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.shape != shape:
            raise ValueError(
                f"attention_mask of shape {tuple(attention_mask.shape)} does not belong to a batch of shape "
                f"{tuple(shape)}"
            )
        hidden_states = self.embeddings(
            input_ids, token_type_ids, position_ids, inputs_embeds, attention_mask, task_type_ids
        )
        layer_types = set(self.config.layer_types or ["full_attention"])
        position_embeddings = None
        if self.rotary_embeddings is not None:
            if position_ids is None:
                position_ids = torch.arange(shape[1], device=device).unsqueeze(0)
            position_embeddings = {
                each: self.rotary_embeddings(hidden_states, position_ids, each) for each in layer_types
            }
        if packing is None or is_tracing(hidden_states):
            packing = self.packing_of(hidden_states, attention_mask, {"unpad": unpad, **kwargs})
        if packing is None:
            masks = {each: MASKS[each](self.config, hidden_states, attention_mask) for each in layer_types}
            hidden_states = self.encoder(hidden_states, masks, position_embeddings, **kwargs)
        else:
            hidden_states = self.encode_packed(packing, hidden_states, position_embeddings, **kwargs)
        pooler_output = self.pooler(hidden_states) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooler_output)

    def packing_of(
        self,
        inputs: torch.Tensor,
        attention_mask: torch.Tensor | None,
        kwargs: dict[str, Any],
        labels: torch.Tensor | None = None,
    ) -> Packing | None:
        """How this batch is packed; None where it is left padded (see `packing_for`).

        Args:
            inputs: ids or embeddings, `(batch, sequence, …)`.
            attention_mask: as the caller gave it.
            kwargs: what the caller asked for beside, `unpad` included.
            labels: of tokens, which a head's loss counts.
        """
        unpad = kwargs.get("unpad") or self.config.unpad
        is_read = self.pooler is not None or self.first_place_is_read
        return packing_for(self.config, attention_mask, inputs, unpad, self.training, is_read, labels, kwargs)

    def encode_packed(
        self,
        packing: Packing,
        hidden_states: torch.Tensor,
        position_embeddings: dict[str, tuple[torch.Tensor, torch.Tensor]] | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Run the encoder on real tokens alone: `(batch, sequence, hidden_size)` to the same, zeros at padding."""
        # Within a sequence nothing is masked, but for what is too far away.
        masks: dict[str, torch.Tensor | BlockMask | None] = {"full_attention": None}
        local = "sliding_attention" in (self.config.layer_types or [])
        if self.config._attn_implementation == "flex_attention":
            masks["full_attention"] = packing.block_mask()
            if local:
                masks["sliding_attention"] = packing.block_mask(self.config.sliding_window)
        elif local:
            masks["sliding_attention"] = MASKS["sliding_attention"](self.config, hidden_states[:1], None)
        if position_embeddings is not None:
            position_embeddings = {
                layer_type: (packing.pack(cos), packing.pack(sin))
                for layer_type, (cos, sin) in position_embeddings.items()
            }
        packed = self.encoder(packing.pack(hidden_states), masks, position_embeddings, packing=packing, **kwargs)
        return packing.unpack(packed)

    def predict_contacts(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Tell which amino acids of proteins touch: probabilities `(batch, sequence - 2, sequence - 2)`.

        Needs `attn_implementation="eager"`, which alone gives attention weights.

        Args:
            input_ids: `(batch, sequence)`, with one token before and one after the protein.
            attention_mask: 1 for a token, 0 for padding, `(batch, sequence)`.

        Raises:
            ValueError: the model has no contact head, or another attention back end.
        """
        if self.contact_head is None or self.config._attn_implementation != "eager":
            raise ValueError(
                "predict_contacts needs a model with contact_head=True (ESM) and attn_implementation='eager'"
            )
        attentions = torch.stack(
            self(input_ids, attention_mask, output_attentions=True, return_dict=True).attentions, dim=1
        )
        # (batch, sequence) -> (batch, 1, 1, sequence, 1), and the same for keys
        token = attention_mask[:, None, None, :]
        return self.contact_head(input_ids, attentions * token[..., None, :] * token[..., :, None])


# The mask of each type of layers.
MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
}


class FFNForMaskedLM(FFNTextPreTrainedModel):
    """The text encoder with a masked-language-model head, its decoder tied to the word embeddings."""

    _tied_weights_keys = {
        "lm_head.decoder.weight": "model.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    _new_head_modules = ("lm_head",)

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        if not (config.decoder_bias and config.lm_head_bias):
            self._tied_weights_keys = {"lm_head.decoder.weight": "model.embeddings.word_embeddings.weight"}
        self.model = FFNTextModel(config, add_pooling_layer=False)
        self.lm_head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings
        old = self.lm_head.bias
        if old is None:
            return
        if new_embeddings.bias is not None and self.config.tie_word_embeddings:
            self.lm_head.bias = new_embeddings.bias
            return
        bias = old.new_zeros(new_embeddings.out_features)
        kept = min(len(old), len(bias))
        bias[:kept] = old.detach()[:kept]
        self.lm_head.bias = nn.Parameter(bias)
        self.lm_head.freeze_unused()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        """Predict tokens: logits `(batch, sequence, vocab_size)`; inputs as in `FFNTextModel.forward`.

        Where padding is left out (`config.unpad`), it has no logits either: they are zeros there.

        Args:
            labels: token ids `(batch, sequence)`, -100 where there is nothing to predict; others at padding have the
                batch computed with padding.
        """
        asked = self.pack_first(input_ids, attention_mask, inputs_embeds, kwargs, labels)
        outputs = self.model(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **asked
        )
        hidden_states, packing = outputs.last_hidden_state, asked["packing"]
        if packing is not None:
            hidden_states = packing.pack(hidden_states)
        logits = self.lm_head(hidden_states)
        loss = None
        if labels is not None:
            if packing is not None:
                labels = packing.pack(labels.reshape(packing.shape).unsqueeze(-1)).squeeze(-1)
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        if packing is not None:
            logits = packing.unpack(logits)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class FFNForSequenceClassification(FFNTextPreTrainedModel):
    """The text encoder with a classifier or regressor of sequences (see `config.classifier_head`)."""

    _new_head_modules = ("classifier", "head", "model.pooler")

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = FFNTextModel(config, add_pooling_layer=config.classifier_pooling == "pooler")
        self.model.first_place_is_read = config.classifier_pooling == "cls"
        self.head = sequence_head(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Classify sequences: logits `(batch, num_labels)`; inputs as in `FFNTextModel.forward`.

        Args:
            labels: class ids `(batch,)`; floats `(batch,)` for regression (one label); floats
                `(batch, num_labels)` for several labels at once. `config.problem_type` says which, or the labels do.
        """
        outputs = self.model(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **kwargs
        )
        features = pooled(
            self.config.classifier_pooling, outputs.last_hidden_state, outputs.pooler_output, attention_mask
        )
        logits = self.classifier(self.dropout(self.head(features)))
        loss = classification_loss(self, labels, logits, **kwargs) if labels is not None else None
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class FFNForTokenClassification(FFNTextPreTrainedModel):
    """The text encoder with a classifier on every token."""

    _new_head_modules = ("classifier", "head")

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = FFNTextModel(config, add_pooling_layer=False)
        self.head = token_head(config)
        self.dropout = classifier_dropout(config, config.token_classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        """Classify tokens: logits `(batch, sequence, num_labels)`; inputs as in `FFNTextModel.forward`.

        Args:
            labels: class ids `(batch, sequence)`, -100 where there is nothing to classify; others at padding have the
                batch computed with padding.
        """
        asked = self.pack_first(input_ids, attention_mask, inputs_embeds, kwargs, labels)
        outputs = self.model(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **asked
        )
        logits = self.classifier(self.dropout(self.head(outputs.last_hidden_state)))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class FFNForQuestionAnswering(FFNTextPreTrainedModel):
    """The text encoder with a head that marks where an answer starts and ends."""

    _new_head_modules = ("qa_outputs", "head")

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.model = FFNTextModel(config, add_pooling_layer=False)
        self.head = token_head(config)
        self.dropout = nn.Dropout(config.qa_dropout)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        """Mark answers: start and end logits, each `(batch, sequence)`; inputs as in `FFNTextModel.forward`.

        The loss is a softmax over whole rows, padding included, so a batch with answers is computed with padding.
        Where padding is left out (`config.unpad`), its logits are the least number there is: no answer lies there.

        Args:
            start_positions: index of the answer's first token, `(batch,)`; beyond the sequence it does not count.
            end_positions: index of the answer's last token, `(batch,)`; beyond the sequence it does not count.
        """
        if start_positions is not None and end_positions is not None:
            kwargs["unpad"] = "never"
        asked = self.pack_first(input_ids, attention_mask, inputs_embeds, kwargs)
        outputs = self.model(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, return_dict=True, **asked
        )
        logits = self.qa_outputs(self.dropout(self.head(outputs.last_hidden_state)))
        if attention_mask is not None and asked["packing"] is not None:
            logits = logits.masked_fill(attention_mask.unsqueeze(-1) == 0, torch.finfo(logits.dtype).min)
        # (batch, sequence, 2) -> two of (batch, sequence)
        start_logits, end_logits = (each.contiguous() for each in logits.unbind(dim=-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions, **kwargs)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


FFNTextModel.register_for_auto_class("AutoModel")
FFNForMaskedLM.register_for_auto_class("AutoModelForMaskedLM")
FFNForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
FFNForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")
FFNForQuestionAnswering.register_for_auto_class("AutoModelForQuestionAnswering")

__all__ = [
    "FFNForMaskedLM",
    "FFNForQuestionAnswering",
    "FFNForSequenceClassification",
    "FFNForTokenClassification",
    "FFNTextModel",
    "FFNTextPreTrainedModel",
]
