"""From token ids to the first hidden states."""

from typing import Any

import pytest
import torch

from hf_ffn import FFNTextModel, embeddings_ffn_text
from hf_ffn.embeddings_ffn_text import FFNTextEmbeddings

from tiny import ffn_text_config, telling_model

AFTER_PADDING = {"positions_after_padding": True, "pad_token_id": 1, "max_position_embeddings": 12}


def embeddings(**config: Any) -> FFNTextEmbeddings:
    """The embeddings of a telling model."""
    return telling_model(FFNTextModel, ffn_text_config(**config)).embeddings


def test_positions_are_counted_over_the_tokens_that_are_no_padding() -> None:
    ids = torch.tensor([[1, 1, 7, 8, 9], [7, 8, 1, 9, 1]])
    module = embeddings(**AFTER_PADDING)
    assert module.positions_of(ids, module.word_embeddings(ids)).tolist() == [[1, 1, 2, 3, 4], [2, 3, 1, 4, 1]]
    assert module.positions_of(None, module.word_embeddings(ids)).tolist() == [[2, 3, 4, 5, 6]]


def test_padding_does_not_count_towards_the_longest_sequence() -> None:
    module = embeddings(**AFTER_PADDING)
    ids = torch.tensor([[1] * 5 + [7] * 10])
    assert module(ids, None, None, None).shape == (1, 15, 32)
    with pytest.raises(ValueError, match=r"sequence of 11 tokens is longer than the 10 .*max_position_embeddings=12"):
        module(torch.full((1, 11), 7), None, None, None)


def test_the_position_of_padding_is_not_trained() -> None:
    module = embeddings(**AFTER_PADDING)
    module(torch.tensor([[7, 8, 1, 1]]), None, None, None).sum().backward()
    assert module.position_embeddings.weight.grad[1].abs().max() == 0


def test_narrow_embeddings_are_projected() -> None:
    module = embeddings(embedding_size=12)
    assert {name: tuple(each.shape) for name, each in module.state_dict().items()} == {
        "word_embeddings.weight": (99, 12),
        "position_embeddings.weight": (40, 12),
        "token_type_embeddings.weight": (2, 12),
        "norm.weight": (12,),
        "norm.bias": (12,),
        "projection.weight": (32, 12),
        "projection.bias": (32,),
    }
    assert module(torch.tensor([[5, 6]]), None, None, None).shape == (1, 2, 32)
    assert embeddings(embedding_size=32).projection is None


def test_a_model_without_segments_passes_them_over_and_says_so(messages: pytest.LogCaptureFixture) -> None:
    module = embeddings(type_vocab_size=0)
    ids = torch.tensor([[5, 6]])
    assert torch.equal(module(ids, torch.zeros_like(ids), None, None), module(ids, None, None, None))
    assert messages.text == ""
    embeddings_ffn_text.logger.warning_once.cache_clear()
    assert torch.equal(module(ids, torch.ones_like(ids), None, None), module(ids, None, None, None))
    assert "token_type_ids other than 0 make no difference" in messages.text


@pytest.mark.parametrize(
    ("name", "field", "config"),
    [("token_type_ids", "type_vocab_size=2", {}), ("task_type_ids", "task_type_vocab_size=3", {"use_task_id": True})],
)
def test_ids_that_there_is_no_row_for_are_refused(name: str, field: str, config: dict[str, Any]) -> None:
    model = telling_model(FFNTextModel, ffn_text_config(**config))
    ids = torch.tensor([[5, 6]])
    with pytest.raises(ValueError, match=f"{name} from 4 to 4 .*{field}"):
        model(ids, **{name: torch.full_like(ids, 4)})


def test_masked_tokens_are_dropped_and_the_others_scaled_up() -> None:
    module = embeddings(token_dropout=True, mask_token_id=9, embedding_norm=False, position_embedding_type="rotary",
                        type_vocab_size=0)  # fmt: skip
    plain = module.word_embeddings(torch.tensor([[5, 6, 7, 8]]))
    found = module(torch.tensor([[5, 9, 7, 8]]), None, None, None)
    # A quarter is masked here, where 12 % were in training.
    torch.testing.assert_close(found, plain * torch.tensor([1.0, 0.0, 1.0, 1.0])[:, None] * 0.88 / 0.75)


def test_embeddings_of_padding_are_zero_where_a_model_wants_it() -> None:
    ids, mask = torch.tensor([[5, 6, 0]]), torch.tensor([[1, 1, 0]])
    assert embeddings(zero_padding=True)(ids, None, None, None, mask)[0, 2].abs().max() == 0
    assert embeddings()(ids, None, None, None, mask)[0, 2].abs().max() > 0
