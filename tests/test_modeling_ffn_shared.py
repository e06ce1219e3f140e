"""What every model promises, of text and of images, with and without a head."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel

import hf_ffn

from tiny import (
    BERT_CLASSES,
    VIT_CLASSES,
    bert_config,
    ffn_model,
    image_inputs,
    inputs_for,
    labels_for,
    telling_model,
    text_inputs,
    vit_config,
)

BASES = ["FFNTextModel", "FFNVisionModel"]
HEADS = [name for name in (*BERT_CLASSES.values(), *VIT_CLASSES.values()) if name not in BASES]
ORIGINALS = {ours: theirs for theirs, ours in (BERT_CLASSES | VIT_CLASSES).items()}
CLASSIFIERS = ["FFNForSequenceClassification", "FFNForImageClassification"]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

# Every head with every kind of labels that it learns from.
TASKS = [
    pytest.param(name, problem, id=f"{name}-{'-'.join(map(str, problem.values())) or 'its own'}")
    for name in HEADS
    for problem in (
        [
            {"problem_type": "single_label_classification", "num_labels": 3},
            {"problem_type": "multi_label_classification", "num_labels": 3},
            {"problem_type": "regression", "num_labels": 1},
            {"problem_type": "regression", "num_labels": 3},
        ]
        if name in CLASSIFIERS
        else [{}]
    )
]

# Everything in the block that is off by default.
RICH = {"gated": True, "layer_scale_init_value": 0.3, "norm_order": "pre"}


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    """Forget what was compiled, before and after."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def batch_for(config: Any, batch_size: int) -> dict[str, torch.Tensor]:
    """Inputs in a batch of a chosen size."""
    make = image_inputs if hasattr(config, "image_size") else text_inputs
    return make(config, batch_size=batch_size)


def first_output(outputs: Any) -> torch.Tensor:
    """Logits where there are some, hidden states elsewhere; a question's start and end logits together."""
    if hasattr(outputs, "start_logits"):
        return torch.stack((outputs.start_logits, outputs.end_logits))
    return outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state


def loss_and_gradients(model: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """One backward pass from clean gradients; fails where a parameter that is to be trained got none."""
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert [name for name, parameter in parameters.items() if parameter.grad is None] == []
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in parameters.items()}


def assert_same_gradients(
    actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], atol: float = 1e-6
) -> None:
    """Fail with the name of the first parameter whose gradients differ, and where there are hardly any gradients."""
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-2
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, atol=atol, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


# Attention back ends


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("implementation", ["sdpa", "flex_attention"])
@pytest.mark.parametrize("name", BASES)
def test_attention_back_ends_agree_with_the_one_written_out(name: str, implementation: str, norm_order: str) -> None:
    model = ffn_model(name, norm_order=norm_order)
    inputs = inputs_for(model.config)
    model.set_attn_implementation("eager")
    # transformers compiles flex attention, for half a minute; uncompiled it computes the same.
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        expected = model(**inputs).last_hidden_state
        model.set_attn_implementation(implementation)
        assert model.encoder.layers[0].attention.config._attn_implementation == implementation
        torch.testing.assert_close(model(**inputs).last_hidden_state, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", BASES)
def test_the_default_back_end_is_sdpa(name: str) -> None:
    assert ffn_model(name).config._attn_implementation == "sdpa"


# Hidden states and attention weights


@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_all_hidden_states_and_attention_weights_come_on_request(name: str) -> None:
    model = ffn_model(name, num_hidden_layers=2, attn_implementation="eager")
    inputs = inputs_for(model.config)
    batch_size, length = (2, 17) if "pixel_values" in inputs else (3, 12)
    outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
    assert [tuple(states.shape) for states in outputs.hidden_states] == 3 * [(batch_size, length, 32)]
    assert [tuple(weights.shape) for weights in outputs.attentions] == 2 * [(batch_size, 4, length, length)]
    for weights in outputs.attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(batch_size, 4, length))
        if "attention_mask" in inputs:
            padding = (inputs["attention_mask"] == 0)[:, None, None].expand_as(weights)
            assert weights[padding].max() == 0
    # What shows layers is computed with padding, so the plain outputs are as well here.
    model.config.unpad = "never"
    assert torch.equal(first_output(outputs), first_output(model(**inputs)))

    plain = model(**inputs)
    assert plain.hidden_states is None
    assert plain.attentions is None


@pytest.mark.parametrize("name", [*BASES, *HEADS, "FFNForImageClassificationWithTeacher"])
def test_tuples_hold_what_outputs_hold_by_argument_and_by_configuration(name: str) -> None:
    model = ffn_model(name, num_hidden_layers=1)
    inputs = inputs_for(model.config)
    expected = model(**inputs).to_tuple()
    by_argument = model(**inputs, return_dict=False)
    model.config.return_dict = False
    by_configuration = model(**inputs)
    for found in (by_argument, by_configuration):
        assert type(found) is tuple
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", BASES)
def test_hidden_states_are_what_each_block_takes_in(name: str) -> None:
    model = ffn_model(name)
    taken = []
    for block in model.encoder.layers:
        block.register_forward_pre_hook(lambda _, arguments: taken.append(arguments[0]))
    hidden_states = model(**inputs_for(model.config), output_hidden_states=True).hidden_states
    assert len(taken) == len(hidden_states) - 1
    assert all(torch.equal(*pair) for pair in zip(taken, hidden_states, strict=False))


@pytest.mark.parametrize("name", HEADS)
def test_a_tuple_comes_on_request(name: str) -> None:
    model = ffn_model(name)
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    outputs, as_tuple = model(**batch), model(**batch, return_dict=False)
    assert isinstance(as_tuple, tuple)
    assert all(torch.equal(*pair) for pair in zip(as_tuple, outputs.values(), strict=True))


# Losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("name", "problem"), TASKS)
def test_logits_and_losses_equal_those_of_transformers_own_heads(
    name: str, problem: dict[str, Any], dtype: torch.dtype, save_source: Callable[..., Path]
) -> None:
    folder = save_source(ORIGINALS[name], **problem)
    original = getattr(transformers, ORIGINALS[name]).from_pretrained(folder, dtype=dtype)
    model = getattr(hf_ffn, name).from_pretrained(folder, dtype=dtype)
    model.config.unpad = "never"
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    if "labels" in batch and batch["labels"].is_floating_point():
        batch["labels"] = batch["labels"].to(dtype)
    ours, theirs = model(**batch), original(**batch)
    assert first_output(ours).dtype == dtype
    assert torch.equal(first_output(ours), first_output(theirs))
    torch.testing.assert_close(ours.loss, theirs.loss, check_dtype=False)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["int", "tensor"])
@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (1, 4, 3)], ids=["2x4", "unequal"])
@pytest.mark.parametrize(("name", "problem"), TASKS)
def test_accumulated_micro_batches_equal_one_batch(
    name: str, problem: dict[str, Any], sizes: tuple[int, ...], as_tensor: bool
) -> None:
    model = ffn_model(name, **NO_DROPOUT, **problem).train()
    inputs = batch_for(model.config, 8)
    labels = labels_for(model, inputs)
    if "start_positions" in labels:
        labels["start_positions"][2] = labels["end_positions"][2] = 99  # beyond the sequence: does not count
        count: Any = 7
    else:
        count = int((labels["labels"] != -100).sum())
    loss, gradients = loss_and_gradients(model, inputs | labels)

    model.zero_grad()
    accumulated, start = 0.0, 0
    for size in sizes:
        micro_batch = {key: tensor[start : start + size] for key, tensor in (inputs | labels).items()}
        part = model(**micro_batch, num_items_in_batch=torch.tensor(count) if as_tensor else count).loss
        part.backward()
        accumulated += part.item()
        start += size
    assert accumulated == pytest.approx(loss.item(), abs=1e-6, rel=1e-6)
    assert_same_gradients({name: parameter.grad for name, parameter in model.named_parameters()}, gradients)


@pytest.mark.parametrize(
    ("num_labels", "labels"),
    [
        (1, torch.tensor([0.5, -1.0])),
        (1, torch.tensor([0, 1])),
        (3, torch.tensor([2, 0])),
        (3, torch.tensor([2, 0], dtype=torch.int32)),
        (3, torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])),
    ],
    ids=["one float", "one int", "long", "int", "floats"],
)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_problem_type_is_decided_as_transformers_does(name: str, num_labels: int, labels: torch.Tensor) -> None:
    make_config = vit_config if "Image" in name else bert_config
    original = telling_model(getattr(transformers, ORIGINALS[name]), make_config(num_labels=num_labels))
    model = ffn_model(name, num_labels=num_labels)
    batch = batch_for(model.config, 2) | {"labels": labels}
    outcomes = []
    for one in (model, original):
        try:
            one(**batch)
        except RuntimeError as error:  # torch takes only long class ids, wherever they come from
            outcomes.append((one.config.problem_type, str(error)))
        else:
            outcomes.append((one.config.problem_type, ""))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] is not None


@pytest.mark.parametrize("name", HEADS)
def test_there_is_no_loss_without_labels(name: str) -> None:
    model = ffn_model(name)
    assert model(**inputs_for(model.config)).loss is None


# Training


@pytest.mark.parametrize("variant", [{}, RICH, {"tie_word_embeddings": False}], ids=["plain", "rich", "untied"])
@pytest.mark.parametrize("name", HEADS)
def test_no_parameter_of_a_head_is_dead(name: str, variant: dict[str, Any]) -> None:
    model = ffn_model(name, **variant).train()
    inputs = inputs_for(model.config)
    _, gradients = loss_and_gradients(model, inputs | labels_for(model, inputs))
    # BERT's untied decoder has a bias of its own; the one beside it stays for the file's sake, and is not trained.
    frozen = {"lm_head.bias"} if name == "FFNForMaskedLM" and "tie_word_embeddings" in variant else set()
    assert {key for key, _ in model.named_parameters()} - gradients.keys() == frozen
    # A bias of the keys moves all scores of a query alike, which softmax does not see.
    silent = [key for key, gradient in gradients.items() if not gradient.any() and not key.endswith("k_proj.bias")]
    assert silent == []


@pytest.mark.parametrize("name", HEADS)
def test_gradient_checkpointing_changes_neither_loss_nor_gradients(name: str) -> None:
    model = ffn_model(name, num_hidden_layers=2, **NO_DROPOUT, **RICH).train()
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    loss, gradients = loss_and_gradients(model, batch)
    model.gradient_checkpointing_enable()
    checkpointed_loss, checkpointed = loss_and_gradients(model, batch)
    torch.testing.assert_close(checkpointed_loss, loss, atol=1e-6, rtol=0)
    assert_same_gradients(checkpointed, gradients)


@pytest.mark.parametrize("name", HEADS)
def test_gradient_checkpointing_under_autocast_reaches_every_parameter(name: str) -> None:
    model = ffn_model(name, num_hidden_layers=2, **NO_DROPOUT).train()
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        loss, gradients = loss_and_gradients(model, batch)
        model.gradient_checkpointing_enable()
        checkpointed_loss, checkpointed = loss_and_gradients(model, batch)
    torch.testing.assert_close(checkpointed_loss, loss, atol=1e-6, rtol=0)
    assert_same_gradients(checkpointed, gradients)


@pytest.mark.parametrize("name", BASES)
def test_gradient_checkpointing_repeats_the_same_dropout(name: str) -> None:
    model = ffn_model(name, hidden_dropout_prob=0.3, drop_path_rate=0.3, activation_dropout_prob=0.2).train()
    inputs = inputs_for(model.config)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(0)
        model(**inputs).pooler_output.square().sum().backward()
        gradients.append({key: parameter.grad.clone() for key, parameter in model.named_parameters()})
    assert_same_gradients(gradients[1], gradients[0])


@pytest.mark.parametrize("name", BASES)
def test_gradient_checkpointing_keeps_less_and_is_not_reentrant(name: str) -> None:
    model = ffn_model(name).train()
    inputs = inputs_for(model.config)

    def numbers_kept() -> int:
        kept = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(**inputs)
        return sum(kept)

    everything = numbers_kept()
    model.gradient_checkpointing_enable()
    assert numbers_kept() < everything / 2
    for block in model.encoder.layers:
        assert block._gradient_checkpointing_func.keywords["use_reentrant"] is False


@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_dropout_acts_in_training_and_never_in_eval(name: str) -> None:
    model = ffn_model(name, hidden_dropout_prob=0.3)
    inputs = inputs_for(model.config)
    assert torch.equal(first_output(model(**inputs)), first_output(model(**inputs)))
    torch.manual_seed(0)
    model.train()
    assert not torch.equal(first_output(model(**inputs)), first_output(model(**inputs)))


@pytest.mark.parametrize("name", BASES)
def test_the_encoders_dropout_acts_on_its_embeddings_too(name: str) -> None:
    model = ffn_model(name, hidden_dropout_prob=1.0)
    embedded = []
    model.embeddings.register_forward_hook(lambda _, arguments, output: embedded.append(output))
    inputs = inputs_for(model.config)
    model(**inputs)
    model.train()(**inputs)
    assert embedded[0].abs().min() > 0
    assert embedded[1].abs().max() == 0


# Initialisation


def load_from_nothing(model_class: Any, config: Any) -> Any:
    """transformers' own loading of an empty checkpoint, which builds on no device and makes all weights afterwards."""
    return PreTrainedModel.from_pretrained.__func__(model_class, None, config=config, state_dict={})


@pytest.mark.parametrize("make", [type.__call__, load_from_nothing], ids=["new", "lacking"])
@pytest.mark.parametrize("std", [0.02, 0.1])
@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_new_weights_are_drawn_from_a_truncated_normal(name: str, std: float, make: Callable[..., Any]) -> None:
    config = ffn_model(name, initializer_range=std, layer_scale_init_value=0.5).config
    torch.manual_seed(0)
    model = make(getattr(hf_ffn, name), config)
    # The standard deviation of what is left of a normal distribution that is cut at two standard deviations
    left = std * math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))
    norms = {key for key, module in model.named_modules() if isinstance(module, nn.LayerNorm)}
    for key, parameter in model.named_parameters():
        owner, kind = key.rpartition(".")[::2]
        if kind == "bias":
            assert not parameter.any(), key
        elif owner in norms:
            assert torch.equal(parameter, torch.ones_like(parameter)), key
        elif kind == "scale":
            assert torch.equal(parameter, torch.full_like(parameter, 0.5)), key
        else:
            drawn = parameter[parameter != 0]
            assert drawn.numel() >= parameter.numel() - 32, key  # All but the padding token's
            assert drawn.abs().max() <= 2 * std * (1 + 1e-6), key
            assert drawn.mean().abs() < 5 * left / math.sqrt(drawn.numel()), key
            assert drawn.std().item() == pytest.approx(left, rel=4 / math.sqrt(drawn.numel())), key


@pytest.mark.parametrize("eps", [1e-12, 1e-5])
@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_every_layer_norm_has_the_configurations_eps(name: str, norm_order: str, eps: float) -> None:
    model = ffn_model(name, norm_order=norm_order, layer_norm_eps=eps)
    found = [module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(found) >= 6
    assert set(found) == {eps}


# Compiling and exporting


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_the_full_graph_compiles_and_computes_the_same(name: str) -> None:
    model = ffn_model(name, num_hidden_layers=2)
    model.config.unpad = "never"  # as captured graphs are computed
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        expected, actual = model(**batch), compiled(**batch)
    torch.testing.assert_close(first_output(actual), first_output(expected), atol=1e-6, rtol=0)
    if name in HEADS:
        torch.testing.assert_close(actual.loss, expected.loss, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_compiled_full_graph_trains_the_same(name: str) -> None:
    model = ffn_model(name, num_hidden_layers=2, **NO_DROPOUT, **RICH).train()
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    loss, gradients = loss_and_gradients(model, batch)
    model.compile(fullgraph=True, backend="aot_eager")
    compiled_loss, compiled = loss_and_gradients(model, batch)
    torch.testing.assert_close(compiled_loss, loss, atol=1e-6, rtol=0)
    assert_same_gradients(compiled, gradients)


@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_the_exported_program_computes_the_same_for_other_sizes(name: str) -> None:
    model = ffn_model(name, num_hidden_layers=2)
    model.config.unpad = "never"  # as captured graphs are computed
    inputs = inputs_for(model.config)
    batch = torch.export.Dim("batch", max=64)
    if "pixel_values" in inputs:
        dynamic = {"pixel_values": {0: batch}}
        others = image_inputs(model.config, batch_size=5)
    else:
        length = torch.export.Dim("length", max=40)
        dynamic = {"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}}
        others = text_inputs(model.config, batch_size=5, length=17)
    program = torch.export.export(model, (), kwargs=inputs, dynamic_shapes=dynamic)
    for one in (inputs, others):
        with torch.no_grad():
            expected, actual = model(**one), program.module()(**one)
        torch.testing.assert_close(first_output(actual), first_output(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "bias"),
    [
        ("FFNTextModel", {"relative_attention_num_buckets": 8}),
        ("FFNForMaskedLM", {"relative_attention_num_buckets": 8}),
        ("FFNForQuestionAnswering", {"relative_attention_num_buckets": 8}),
        ("FFNVisionModel", {"use_relative_position_bias": True}),
        ("FFNForImageClassification", {"use_shared_relative_position_bias": True}),
    ],
)
def test_a_graph_captured_with_gradients_takes_attention_of_another_layout(name: str, bias: dict[str, Any]) -> None:
    """As ONNX's exporter keeps sdpa's operator, and computes without gradients what was captured with them."""
    model = ffn_model(name, num_hidden_layers=1, attn_implementation="sdpa", **bias)
    model.config.unpad = "never"  # as captured graphs are computed
    inputs = inputs_for(model.config)
    operators = torch.export.default_decompositions()
    operators.pop(torch.ops.aten.scaled_dot_product_attention.default)
    program = torch.export.export(model, (), kwargs=inputs)
    with torch.no_grad():
        program = program.run_decompositions(operators)
    found, expected = program.module()(**inputs), model(**inputs)
    torch.testing.assert_close(first_output(found), first_output(expected), atol=1e-5, rtol=0)


# Precisions and devices


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.1), (torch.float16, 0.01)])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_half_precision_stays_close(name: str, implementation: str, dtype: torch.dtype, tolerance: float) -> None:
    model = ffn_model(name, attn_implementation=implementation)
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    with torch.no_grad():
        expected, actual = model(**batch), model.to(dtype)(**batch)
    assert first_output(actual).dtype == dtype
    deviation = (first_output(actual).float() - first_output(expected)).abs().max()
    assert deviation < tolerance * first_output(expected).std()
    if name in HEADS:
        torch.testing.assert_close(actual.loss.float(), expected.loss, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("device_map", ["auto", {"": "cpu"}], ids=["auto", "cpu"])
@pytest.mark.parametrize("name", ["FFNForMaskedLM", "FFNForImageClassification"])
def test_a_device_map_loads_the_same_model(name: str, device_map: Any, tmp_path: Path) -> None:
    model = ffn_model(name)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, device_map=device_map)
    assert {parameter.device.type for parameter in loaded.parameters()} == {"cpu"}
    inputs = inputs_for(model.config)
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


# Layers of different widths


@pytest.mark.parametrize("name", [*BASES, *HEADS])
def test_layers_of_different_widths_are_saved_and_loaded(name: str, tmp_path: Path) -> None:
    layers = {0: {"intermediate_size": 24}, 2: {"intermediate_size": 8, "gated": True}}
    model = ffn_model(name, per_layer_config=layers)
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        shapes = {
            key[key.index("layers.") :]: file.get_slice(key).get_shape()
            for key in file.keys()  # noqa: SIM118 (it is no dictionary)
            if key.endswith(("linear_1.weight", "linear_gate.weight"))
        }
    assert shapes == {
        "layers.0.ffn.linear_1.weight": [24, 32],
        "layers.1.ffn.linear_1.weight": [64, 32],
        "layers.2.ffn.linear_1.weight": [8, 32],
        "layers.2.ffn.linear_gate.weight": [8, 32],
    }
    inputs = inputs_for(model.config)
    loaded = type(model).from_pretrained(tmp_path)
    assert torch.equal(first_output(loaded(**inputs)), first_output(model(**inputs)))
