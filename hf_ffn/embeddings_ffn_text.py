"""From token ids to the encoder's first hidden states.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import torch
from torch import nn
from transformers.utils import is_tracing, logging

from .configuration_ffn import FFNTextConfig
from .modeling_ffn import layer_norm

logger = logging.get_logger(__name__)

# Share of tokens that ESM was trained with a mask for: 15 %, of which 80 % are really masked.
MASKED_IN_TRAINING = 0.15 * 0.8


class FFNTextEmbeddings(nn.Module):
    """Word embeddings, with those of segments, positions and tasks that the configuration asks for.

    Args:
        config: an `FFNTextConfig`.
    """

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__()
        self.config = config
        size = config.embedding_size or config.hidden_size
        pad = config.pad_token_id
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=pad)
        self.position_embeddings = (
            nn.Embedding(
                config.max_position_embeddings, size, padding_idx=pad if config.positions_after_padding else None
            )
            if config.position_embedding_type == "absolute"
            else None
        )
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size) if config.type_vocab_size else None
        self.task_type_embeddings = nn.Embedding(config.task_type_vocab_size, size) if config.use_task_id else None
        self.norm = layer_norm(config, size) if config.embedding_norm else nn.Identity()
        own = config.embedding_dropout_prob
        self.dropout = nn.Dropout(config.hidden_dropout_prob if own is None else own)
        self.projection = nn.Linear(size, config.hidden_size) if size != config.hidden_size else None

    def forward(
        self,
        input_ids: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        attention_mask: torch.Tensor | None = None,
        task_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Map ids `(batch, sequence)`, or `inputs_embeds`, to `(batch, sequence, hidden_size)`."""
        if input_ids is not None:
            refuse_ids_outside(input_ids, self.word_embeddings, "input_ids", "vocab_size")
            inputs_embeds = self.word_embeddings(input_ids)
            if self.config.token_dropout:
                inputs_embeds = self.drop_masked_tokens(inputs_embeds, input_ids, attention_mask)
        assert inputs_embeds is not None

        # Summed in BERT's order, for in floating point another order gives other last digits.
        embeddings = self.add_ids(inputs_embeds, self.token_type_embeddings, token_type_ids, "token_type")
        if self.position_embeddings is not None:
            if position_ids is None:
                position_ids = self.positions_of(input_ids, inputs_embeds)
            else:
                refuse_ids_outside(position_ids, self.position_embeddings, "position_ids", "max_position_embeddings")
            embeddings = embeddings + self.position_embeddings(position_ids)
        embeddings = self.add_ids(embeddings, self.task_type_embeddings, task_type_ids, "task_type")

        embeddings = self.norm(embeddings)
        if self.config.zero_padding and attention_mask is not None:
            embeddings = (embeddings * attention_mask.unsqueeze(-1)).to(embeddings.dtype)
        embeddings = self.dropout(embeddings)
        return embeddings if self.projection is None else self.projection(embeddings)

    @staticmethod
    def add_ids(
        embeddings: torch.Tensor, table: nn.Embedding | None, ids: torch.Tensor | None, name: str
    ) -> torch.Tensor:
        """Add what a table has for ids `(batch, sequence)`; for 0 where they are left out.

        Without a table ids are passed over, as the families without one do: some tokenizers give them to any model.
        """
        if table is None:
            if ids is not None and ids.device.type == "cpu" and not is_tracing(ids) and ids.any():
                logger.warning_once(f"{name}_ids other than 0 make no difference: the model has no {name} embeddings")
            return embeddings
        if ids is None:
            ids = torch.zeros(embeddings.shape[:2], dtype=torch.long, device=embeddings.device)
        else:
            refuse_ids_outside(ids, table, f"{name}_ids", name.replace("token_", "") + "_vocab_size")
        return embeddings + table(ids)

    def positions_of(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor) -> torch.Tensor:
        """Positions `(batch or 1, sequence)`: from 0 on, or over the tokens that are no padding."""
        first, length, device = 0, inputs_embeds.shape[1], inputs_embeds.device
        if self.config.positions_after_padding:
            assert self.config.pad_token_id is not None
            first = self.config.pad_token_id + 1
        if first and input_ids is not None:
            # Padding itself has the position that is never trained.
            token = input_ids.ne(first - 1).int()
            position_ids = (torch.cumsum(token, dim=1) * token).long() + first - 1
        else:
            position_ids = torch.arange(first, first + length, device=device).unsqueeze(0)
        longest = self.config.longest_sequence
        if longest is not None and not is_tracing(inputs_embeds) and length > longest:
            used = int(position_ids.max()) + 1 - first
            if used > longest:
                raise ValueError(
                    f"A sequence of {used} tokens is longer than the {longest} that max_position_embeddings="
                    f"{self.config.max_position_embeddings} allows: truncate it "
                    f"(tokenizer(..., truncation=True, max_length={longest}))"
                )
        return position_ids

    def drop_masked_tokens(
        self, embeddings: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Zero the embeddings of masked tokens, and scale as if as many were masked as in training.

        [Rives et al. 2021](https://doi.org/10.1073/pnas.2016239118).
        """
        masked = input_ids.eq(self.config.mask_token_id or 0)
        embeddings = embeddings.masked_fill(masked.unsqueeze(-1), 0.0)
        lengths = input_ids.shape[1] if attention_mask is None else attention_mask.sum(-1)
        share = masked.sum(-1).float() / lengths
        return (embeddings * (1 - MASKED_IN_TRAINING) / (1 - share)[:, None, None]).to(embeddings.dtype)


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


__all__ = ["FFNTextEmbeddings"]
