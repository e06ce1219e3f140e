"""Which parameters are trained, and which of them decay."""

import torch
from torch import nn
from transformers import PreTrainedModel

from ..modeling_ffn import FeedForward


def choose_trainable(model: PreTrainedModel, train_only: str | None, freeze_embeddings: bool) -> list[str]:
    """Freeze what is not to be trained, by the model's structure and not by names' endings.

    Args:
        model: one of ours, with a head.
        train_only: "ffn" for the feed-forward blocks and the head (all that lies outside the encoder), or None.
        freeze_embeddings: leave the embeddings as they are.

    Returns:
        The names of the parameters that are trained.

    Raises:
        ValueError: `train_only` is something else.
    """
    if train_only not in (None, "ffn"):
        raise ValueError(f"train_only='{train_only}' must be ffn, or be left out")
    if train_only == "ffn":
        model.base_model.requires_grad_(False)
        for module in model.base_model.modules():
            if isinstance(module, FeedForward):
                module.requires_grad_(True)
        # A pooler is the head's first layer, though it lies in the base model.
        if model.base_model.pooler is not None:
            model.base_model.pooler.requires_grad_(True)
    if freeze_embeddings:
        model.base_model.embeddings.requires_grad_(False)
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def add_lora(model: PreTrainedModel, projections: str, rank: int) -> nn.Module:
    """Put LoRA adapters on chosen projections; they and the head are trained, and nothing else.

    Args:
        model: one of ours, with a head.
        projections: names separated by commas, for example "linear_1,linear_2,q_proj".
        rank: of the adapters. Their scale is twice the rank, PEFT's customary ratio.

    Returns:
        PEFT's model around ours.

    Raises:
        ImportError: PEFT is missing (`pip install "hf-ffn[train]"`).
        ValueError: a projection that the blocks do not have.
    """
    from peft import LoraConfig, get_peft_model

    block = model.base_model.encoder.layers[0]
    known = {name.rpartition(".")[2] for name, module in block.named_modules() if isinstance(module, nn.Linear)}
    wanted = [name.strip() for name in projections.split(",")]
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise ValueError(f"lora: no projection called {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    # The head's modules, by structure: everything with parameters beside the encoder, and the pooler within.
    heads = [name for name, module in model.named_children() if name != "model" and list(module.parameters())]
    if model.base_model.pooler is not None:
        heads.append("pooler")
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=wanted, modules_to_save=heads)
    # PEFT makes a set of the list, and adapter_config.json would hold its names in another order each time.
    config.target_modules = sorted(set(wanted))
    return get_peft_model(model, config)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Group trained parameters for the optimizer: matrices decay; biases, norms, scales and positions do not.

    Grouped by dimension: a vector (also one stored as `(1, 1, hidden_size)`) does not decay. Learnt positions are
    matrices, and are told by what they are in the embeddings.
    """
    positions = {
        id(parameter)
        for module in model.modules()
        for name, parameter in [
            *module.named_parameters(recurse=False),
            *((n, c.weight) for n, c in module.named_children() if isinstance(c, nn.Embedding)),
        ]
        if name == "position_embeddings"
    }
    decayed: list[torch.Tensor] = []
    kept: list[torch.Tensor] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            is_matrix = sum(size > 1 for size in parameter.shape) > 1 and id(parameter) not in positions
            (decayed if is_matrix else kept).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
