"""The text encoder and its heads.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask
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
from .modeling_ffn import Encoder, FFNPreTrainedModel, Pooler, classification_loss


class FFNTextEmbeddings(nn.Module):
    """Word, segment and learnt position embeddings, their sum normalised."""

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
    ) -> torch.Tensor:
        """Map ids `(batch, sequence)`, or `inputs_embeds`, to `(batch, sequence, hidden_size)`."""
        if input_ids is not None:
            refuse_ids_outside(input_ids, self.word_embeddings, "input_ids", "vocab_size")
            inputs_embeds = self.word_embeddings(input_ids)
        assert inputs_embeds is not None
        batch_size, seq_length, _ = inputs_embeds.shape
        if position_ids is None:
            self._refuse_too_long(inputs_embeds, seq_length)
            position_ids = torch.arange(seq_length, device=inputs_embeds.device).unsqueeze(0)
        else:
            refuse_ids_outside(position_ids, self.position_embeddings, "position_ids", "max_position_embeddings")
        if token_type_ids is None:
            token_type_ids = torch.zeros(batch_size, seq_length, dtype=torch.long, device=inputs_embeds.device)
        else:
            refuse_ids_outside(token_type_ids, self.token_type_embeddings, "token_type_ids", "type_vocab_size")

        # Summed in BERT's order, for in floating point another order gives other last digits.
        embeddings = inputs_embeds + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings(position_ids)
        return self.dropout(self.norm(embeddings))

    def _refuse_too_long(self, inputs_embeds: torch.Tensor, seq_length: int) -> None:
        longest = self.position_embeddings.num_embeddings
        if not is_tracing(inputs_embeds) and seq_length > longest:
            raise ValueError(
                f"A sequence of {seq_length} tokens is longer than max_position_embeddings={longest}: "
                f"truncate it (tokenizer(..., truncation=True, max_length={longest}))"
            )


def refuse_ids_outside(ids: torch.Tensor, embedding: nn.Embedding, name: str, field: str) -> None:
    """Name the ids that an embedding has no row for, where looking costs nothing: on CPU, outside a trace."""
    if ids.device.type != "cpu" or is_tracing(ids) or ids.numel() == 0:
        return
    lowest, highest = (int(value) for value in torch.aminmax(ids))
    if lowest < 0 or highest >= embedding.num_embeddings:
        raise ValueError(
            f"{name} from {lowest} to {highest} go outside 0…{embedding.num_embeddings - 1} "
            f"({field}={embedding.num_embeddings}): does the tokenizer belong to this model?"
        )


class FFNTextPreTrainedModel(FFNPreTrainedModel):
    """What the text models share."""

    config: FFNTextConfig
    _no_split_modules = ["FFNTextEmbeddings", "EncoderBlock"]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MaskedLMHead):
            init.zeros_(module.bias)


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
        self.encoder = Encoder(config)
        self.pooler = Pooler(config.hidden_size, config.hidden_size, "tanh") if add_pooling_layer else None
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Encode `(batch, sequence)` ids to `(batch, sequence, hidden_size)`.

        Args:
            input_ids: token ids; either these or `inputs_embeds`.
            attention_mask: 1 for a token, 0 for padding, `(batch, sequence)`.
            token_type_ids: segment ids; zeros where left out.
            position_ids: positions; 0, 1, 2… where left out.
            inputs_embeds: `(batch, sequence, hidden_size)` in place of `input_ids`.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Specify exactly one of input_ids and inputs_embeds")
        if input_ids is not None:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)

        hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        if (
            attention_mask is not None
            and attention_mask.dim() == 2
            and attention_mask.shape != hidden_states.shape[:2]
        ):
            raise ValueError(
                f"attention_mask of shape {tuple(attention_mask.shape)} does not belong to a batch of shape "
                f"{tuple(hidden_states.shape[:2])}"
            )
        attention_mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask
        )
        hidden_states = self.encoder(hidden_states, attention_mask, **kwargs)
        pooled = self.pooler(hidden_states) if self.pooler is not None else None
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

    @staticmethod
    def _refuse_mask_of_another_shape(attention_mask: torch.Tensor | None, hidden_states: torch.Tensor) -> None:
        shape = hidden_states.shape[:2]
        if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.shape != shape:
            raise ValueError(
                f"attention_mask of shape {tuple(attention_mask.shape)} does not belong to a batch of shape "
                f"{tuple(shape)}"
            )


class MaskedLMHead(nn.Module):
    """Predicts the token at each place: dense, activation, LayerNorm, and the (tied) word embeddings."""

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        # BERT's files hold the decoder's bias under this name, and the two are tied. Where they are not, BERT's files
        # still hold both, and this one is kept for the way back.
        self.bias = nn.Parameter(torch.zeros(config.vocab_size), requires_grad=config.tie_word_embeddings)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(batch, sequence, hidden_size)` to `(batch, sequence, vocab_size)`."""
        return self.decoder(self.norm(self.activation(self.dense(hidden_states))))


class FFNForMaskedLM(FFNTextPreTrainedModel):
    """The text encoder with a masked-language-model head, its decoder tied to the word embeddings."""

    _tied_weights_keys = {
        "lm_head.decoder.weight": "model.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    _new_head_modules = ("lm_head",)

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.model = FFNTextModel(config, add_pooling_layer=False)
        self.lm_head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings
        if self.config.tie_word_embeddings:
            self.lm_head.bias = new_embeddings.bias
        else:
            self.lm_head.bias = nn.Parameter(new_embeddings.bias.detach().clone(), requires_grad=False)

    def tie_weights(self, *args: Any, **kwargs: Any) -> None:
        super().tie_weights(*args, **kwargs)
        if not self.config.tie_word_embeddings:
            self.lm_head.bias.requires_grad_(False)

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

        Args:
            labels: token ids `(batch, sequence)`, -100 where there is nothing to predict.
        """
        outputs = self.model(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def classifier_dropout(config: FFNTextConfig) -> nn.Dropout:
    """Dropout before a classifier: its own probability, or the encoder's."""
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


class FFNForSequenceClassification(FFNTextPreTrainedModel):
    """The text encoder with a classifier or regressor on the pooled first token."""

    _new_head_modules = ("classifier", "model.pooler")

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = FFNTextModel(config)
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
        outputs = self.model(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = classification_loss(self, labels, logits, **kwargs) if labels is not None else None
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class FFNForTokenClassification(FFNTextPreTrainedModel):
    """The text encoder with a classifier on every token."""

    _new_head_modules = ("classifier",)

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = FFNTextModel(config, add_pooling_layer=False)
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
    ) -> TokenClassifierOutput:
        """Classify tokens: logits `(batch, sequence, num_labels)`; inputs as in `FFNTextModel.forward`.

        Args:
            labels: class ids `(batch, sequence)`, -100 where there is nothing to classify.
        """
        outputs = self.model(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class FFNForQuestionAnswering(FFNTextPreTrainedModel):
    """The text encoder with a head that marks where an answer starts and ends."""

    _new_head_modules = ("qa_outputs",)

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.model = FFNTextModel(config, add_pooling_layer=False)
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

        Args:
            start_positions: index of the answer's first token, `(batch,)`; beyond the sequence it does not count.
            end_positions: index of the answer's last token, `(batch,)`; beyond the sequence it does not count.
        """
        outputs = self.model(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, **kwargs)
        # (batch, sequence, 2) -> two of (batch, sequence)
        start_logits, end_logits = (
            logits.contiguous() for logits in self.qa_outputs(outputs.last_hidden_state).unbind(dim=-1)
        )
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
