"""An image encoder of ViT-B/16's size, inference: nothing is padded, so that only products and their fusing count."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from transformers import ViTConfig, ViTModel

from hf_ffn import FFNVisionModel

from . import peers
from .measure import Contender, Section, Timing, compare, without_gradients
from .ragged import TOLERANCES, bare_products


class OnlyStates(nn.Module):
    """A model as a function of pixels to the last hidden states, as exporters want it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values).last_hidden_state


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """One table, of a batch of four images."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    config = ViTConfig(**(sizes | {"image_size": 64} if quick else {}))
    torch.manual_seed(0)
    theirs = ViTModel(config, add_pooling_layer=False).eval()
    pixels = torch.randn(2 if quick else 4, 3, config.image_size, config.image_size)
    with torch.inference_mode():
        reference = theirs(pixels).last_hidden_state

    def ours(dtype: str | None) -> Callable[[], torch.Tensor]:
        model = converted(theirs)
        return states_of(model if dtype is None else peers.optimised(model, dtype), pixels)

    def half() -> Callable[[], torch.Tensor]:
        model = ViTModel(config, add_pooling_layer=False).eval()
        model.load_state_dict(theirs.state_dict())
        return states_of(model.to(torch.bfloat16), pixels.to(torch.bfloat16))

    @functools.cache
    def graph() -> Any:
        return peers.openvino_graph(OnlyStates(theirs), (pixels,))

    def openvino(dtype: str) -> Callable[[], torch.Tensor]:
        run = peers.openvino_compiled(graph(), dtype)
        return lambda: run(pixels)

    tokens = reference.shape[0] * reference.shape[1]
    contenders = [
        Contender("transformers", lambda: states_of(theirs, pixels), TOLERANCES["float32"]),
        Contender("bound: bare products", lambda: bare_products(config, tokens, torch.float32)),
        Contender("bound, bfloat16", lambda: bare_products(config, tokens, torch.bfloat16), precision="bfloat16"),
        Contender("transformers, bfloat16", half, TOLERANCES["bfloat16"], "bfloat16"),
        Contender("timm", lambda: timm_model(theirs, config, pixels), TOLERANCES["float32"]),
        Contender("hf_ffn", lambda: ours(None), TOLERANCES["float32"]),
        Contender("hf_ffn, optimised", lambda: ours("float32"), TOLERANCES["float32"]),
        Contender("hf_ffn, optimised, bfloat16", lambda: ours("bfloat16"), TOLERANCES["bfloat16"], "bfloat16"),
        Contender("hf_ffn, optimised, int8", lambda: ours("int8"), TOLERANCES["int8"]),
        Contender("OpenVINO", lambda: openvino("float32"), TOLERANCES["float32"]),
        Contender("OpenVINO, bfloat16", lambda: openvino("bfloat16"), TOLERANCES["bfloat16"], "bfloat16"),
    ]
    shape = " × ".join(str(each) for each in pixels.shape)
    yield compare(f"encoder of ViT-B/16's size, pixels {shape}", contenders, reference, timing)


def converted(theirs: Any) -> Any:
    """Our model with the same weights."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return FFNVisionModel.from_pretrained(folder).eval()


def states_of(model: Any, pixels: torch.Tensor) -> Callable[[], torch.Tensor]:
    return without_gradients(lambda pixels: model(pixels).last_hidden_state.float(), pixels)


def timm_model(theirs: Any, config: Any, pixels: torch.Tensor) -> Callable[[], torch.Tensor]:
    """timm's ViT with the same weights."""
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(
        img_size=config.image_size,
        patch_size=config.patch_size,
        embed_dim=config.hidden_size,
        depth=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        mlp_ratio=config.intermediate_size / config.hidden_size,
        num_classes=0,
    ).eval()
    ours = converted(theirs).state_dict()
    target = {
        "cls_token": ours["embeddings.cls_token"],
        "pos_embed": ours["embeddings.position_embeddings"],
        "norm.weight": ours["encoder.norm.weight"],
        "norm.bias": ours["encoder.norm.bias"],
    }
    for kind in ("weight", "bias"):
        target[f"patch_embed.proj.{kind}"] = ours[f"embeddings.patch_embeddings.projection.{kind}"]
        for layer in range(config.num_hidden_layers):
            own = f"encoder.layers.{layer}"
            qkv = [ours[f"{own}.attention.{name}_proj.{kind}"] for name in "qkv"]
            target[f"blocks.{layer}.attn.qkv.{kind}"] = torch.cat(qkv)
            target[f"blocks.{layer}.attn.proj.{kind}"] = ours[f"{own}.attention.o_proj.{kind}"]
            target[f"blocks.{layer}.mlp.fc1.{kind}"] = ours[f"{own}.ffn.linear_1.{kind}"]
            target[f"blocks.{layer}.mlp.fc2.{kind}"] = ours[f"{own}.ffn.linear_2.{kind}"]
            target[f"blocks.{layer}.norm1.{kind}"] = ours[f"{own}.norm_1.{kind}"]
            target[f"blocks.{layer}.norm2.{kind}"] = ours[f"{own}.norm_2.{kind}"]
    # timm's LayerNorms have another eps, which shows on rows of small variance alone.
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = config.layer_norm_eps
    model.load_state_dict(target)
    return without_gradients(model.forward_features, pixels)
