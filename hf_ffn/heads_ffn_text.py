"""What the text models have between the encoder's output and their predictions.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import torch
from torch import nn
from transformers.activations import ACT2FN

from .configuration_ffn import FFNTextConfig
from .modeling_ffn import layer_norm


class MaskedLMHead(nn.Module):
    """Predicts the token at each place: dense, activation, LayerNorm, and the (tied) word embeddings.

    Args:
        config: an `FFNTextConfig`.
    """

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        self.dense = nn.Linear(config.hidden_size, size, bias=config.head_bias)
        self.activation = ACT2FN[config.lm_head_act or config.hidden_act]
        self.norm = layer_norm(config, size)
        self.decoder = nn.Linear(size, config.vocab_size, bias=config.decoder_bias)
        # BERT's files hold the decoder's bias under this name, and the two are tied. Where they are not, BERT's files
        # still hold both, and this one is kept for the way back.
        self.bias = nn.Parameter(torch.zeros(config.vocab_size)) if config.lm_head_bias else None
        self.config = config
        self.freeze_unused()

    def freeze_unused(self) -> None:
        """A bias that the decoder does not use would wait for its gradient in vain."""
        if self.bias is not None and self.config.decoder_bias and not self.config.tie_word_embeddings:
            self.bias.requires_grad_(False)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(batch, sequence, hidden_size)` to `(batch, sequence, vocab_size)`."""
        logits = self.decoder(self.norm(self.activation(self.dense(hidden_states))))
        return logits if self.decoder.bias is not None or self.bias is None else logits + self.bias


class ClassifierHead(nn.Module):
    """A dense layer before a classifier (see `config.classifier_head`).

    Args:
        config: an `FFNTextConfig`.
    """

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__()
        dropout_first = config.classifier_head == "dense"
        self.dropout = classifier_dropout(config) if dropout_first else nn.Identity()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.head_bias)
        self.activation = ACT2FN[config.classifier_act]
        self.norm = layer_norm(config) if config.classifier_head == "prediction" else nn.Identity()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(..., hidden_size)` to the same shape."""
        return self.norm(self.activation(self.dense(self.dropout(hidden_states))))


def sequence_head(config: FFNTextConfig) -> nn.Module:
    """What comes before a sequence classifier, but for its last dropout."""
    return nn.Identity() if config.classifier_head == "linear" else ClassifierHead(config)


def token_head(config: FFNTextConfig) -> nn.Module:
    """What comes before a classifier of tokens, but for its last dropout."""
    return ClassifierHead(config) if config.classifier_head == "prediction" else nn.Identity()


def classifier_dropout(config: FFNTextConfig, own: float | None = None) -> nn.Dropout:
    """Dropout before a classifier: a probability of its own, all classifiers', or the encoder's."""
    for probability in (own, config.classifier_dropout):
        if probability is not None:
            return nn.Dropout(probability)
    return nn.Dropout(config.hidden_dropout_prob)


def pooled(
    kind: str, hidden_states: torch.Tensor, pooler_output: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> torch.Tensor:
    """What a sequence classifier reads, `(batch, hidden_size)`; `kind` is `config.classifier_pooling`."""
    if kind == "pooler":
        assert pooler_output is not None
        return pooler_output
    if kind == "cls":
        return hidden_states[:, 0]
    if attention_mask is None:
        attention_mask = hidden_states.new_ones(hidden_states.shape[:2], dtype=torch.bool)
    return (hidden_states * attention_mask.unsqueeze(-1)).sum(dim=1) / attention_mask.sum(dim=1, keepdim=True)


class ContactHead(nn.Module):
    """Tells from all attention weights which amino acids of a protein touch.

    [Rao et al. 2020](https://doi.org/10.1101/2020.12.15.422761). It is not trained with the encoder, so its weights
    want no gradient.

    Args:
        config: an `FFNTextConfig`; `eos_token_id` ends a protein.
    """

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__()
        assert isinstance(config.eos_token_id, int)
        self.eos_token_id = config.eos_token_id
        self.regression = nn.Linear(config.num_hidden_layers * config.num_attention_heads, 1)
        self.freeze_unused()

    def freeze_unused(self) -> None:
        """No task's loss depends on this head."""
        self.requires_grad_(False)

    def forward(self, input_ids: torch.Tensor, attentions: torch.Tensor) -> torch.Tensor:
        """Give a probability for each pair of amino acids, `(batch, sequence - 2, sequence - 2)`.

        Args:
            input_ids: `(batch, sequence)`, with one token before and one after the protein.
            attentions: `(batch, layers, heads, sequence, sequence)`.
        """
        token = input_ids.ne(self.eos_token_id).to(attentions)
        attentions = attentions * (token.unsqueeze(1) * token.unsqueeze(2))[:, None, None]
        # (batch, layers, heads, n, n) -> (batch, layers * heads, n, n), without the first and last token
        maps = attentions[..., 1:-1, 1:-1].flatten(1, 2)
        maps = maps + maps.transpose(-1, -2)
        # What a token attends to in general says nothing of a pair (average product correction).
        general = maps.sum(-1, keepdim=True) * maps.sum(-2, keepdim=True) / maps.sum((-1, -2), keepdim=True)
        return self.regression((maps - general).permute(0, 2, 3, 1)).squeeze(3).sigmoid()


__all__ = ["ClassifierHead", "ContactHead", "MaskedLMHead"]
