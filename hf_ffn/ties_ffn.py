"""Tied weights, where a model is tied and its checkpoint not, or the other way round.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel


def written_out(model: PreTrainedModel, state_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state dict with a tensor for each name, where memory still shares one that the configuration unties."""
    if getattr(model.config, "tie_word_embeddings", True):
        return state_dict
    shared = set()
    for name, origin in (model._tied_weights_keys or {}).items():
        if name not in state_dict or origin not in state_dict:
            continue
        tensor, its_origin = state_dict[name], state_dict[origin]
        # Weights that are offloaded lie nowhere.
        if not tensor.is_meta and tensor.data_ptr() == its_origin.data_ptr():
            shared.add(name)
    if not shared:
        return state_dict
    return {name: tensor.clone() if name in shared else tensor for name, tensor in state_dict.items()}


def settle_ties(model: PreTrainedModel, missing: set[str], stated: dict[str, Any]) -> list[str]:
    """Give a model that was just loaded the ties that its configuration wants, where its checkpoint has others.

    Args:
        model: just loaded.
        missing: parameters that the checkpoint lacks; those that are copied here are taken out.
        stated: the checkpoint's config.json, in fields of ours.

    Returns:
        What was done, for the loading report.
    """
    ties: dict[str, str] = model._tied_weights_keys or {}
    stored_tied = bool(stated) and stated.get("tie_word_embeddings", True)
    if not ties or not stated or model.config.tie_word_embeddings == stored_tied:
        return []
    if model.config.tie_word_embeddings:
        apart = sorted(ties.keys() - model.all_tied_weights_keys.keys())
        if not apart:
            return []
        untie(model)
        return [f"tie_word_embeddings=True: not tied, as the checkpoint holds another tensor for {', '.join(apart)}"]
    heads = {name.partition(".")[0] for name in ties}
    if all(name in missing for name, _ in model.named_parameters() if name.partition(".")[0] in heads):
        return []
    notes = []
    for name, origin in ties.items():
        to, source = (origin, name) if origin in missing else (name, origin)
        if to in missing and source not in missing:
            with torch.no_grad():
                model.get_parameter(to).copy_(model.get_parameter(source))
            missing.discard(to)
            notes.append(f"tie_word_embeddings=False: {to} begins as a copy of {source}, to which it was tied")
    return notes


def untie(model: PreTrainedModel) -> None:
    """Give every name of a tied parameter a tensor of its own."""
    for name, origin in (model._tied_weights_keys or {}).items():
        parameter = model.get_parameter(name)
        if parameter is model.get_parameter(origin):
            module, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(module), attribute, nn.Parameter(parameter.detach().clone()))
    model.all_tied_weights_keys = {}
    model.config.tie_word_embeddings = False
