"""What conversion does to tensors beyond what transformers' own operations do."""

from typing import Any

import torch
from transformers.core_model_loading import ConversionOps


class Dimensions(ConversionOps):
    """Add or take away leading dimensions of size 1.

    Args:
        theirs: how many dimensions the family's tensor has.
        ours: how many ours has.
    """

    def __init__(self, theirs: int, ours: int) -> None:
        self.theirs = theirs
        self.ours = ours

    @torch.no_grad()
    def convert(
        self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        """Turn the one tensor that it is given."""
        (tensors,) = input_dict.values()
        tensor = tensors[0] if isinstance(tensors, list) else tensors
        own_shape = tensor.shape[max(self.theirs - self.ours, 0) :]
        return {target_patterns[0]: tensor.reshape(*[1] * (self.ours - self.theirs), *own_shape)}

    @property
    def reverse_op(self) -> "Dimensions":
        """The way back."""
        return Dimensions(self.ours, self.theirs)
