"""hf_ffn's classes in transformers' own model tests; `scripts/peer_tests.py` fetches those and runs this file."""

import unittest
from contextlib import AbstractContextManager
from unittest import mock

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.testing_utils import torch_device
from transformers_tests.test_configuration_common import ConfigTester
from transformers_tests.test_modeling_common import ModelTesterMixin

import hf_ffn
from hf_ffn.modeling_ffn import FFNPreTrainedModel

# transformers' tests go by these tables of class names: which labels a class takes, which tests concern it.
for table, model_type, class_name in (
    (modeling_auto.MODEL_MAPPING_NAMES, "hf_ffn_text", "FFNTextModel"),
    (modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, "hf_ffn_text", "FFNForMaskedLM"),
    (modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, "hf_ffn_text", "FFNForSequenceClassification"),
    (modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES, "hf_ffn_text", "FFNForTokenClassification"),
    (modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES, "hf_ffn_text", "FFNForQuestionAnswering"),
    (modeling_auto.MODEL_MAPPING_NAMES, "hf_ffn_vision", "FFNVisionModel"),
    (modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, "hf_ffn_vision", "FFNForImageClassification"),
):
    table[model_type] = class_name


class TextModelTester:
    """Small configurations and batches of the text encoder, with the sizes that transformers' tests look up here."""

    batch_size = 5
    seq_length = 11
    hidden_size = 24
    num_hidden_layers = 2
    num_attention_heads = 3
    is_training = True

    def get_config(self) -> hf_ffn.FFNTextConfig:
        """A post-norm encoder, as BERT is."""
        return hf_ffn.FFNTextConfig(
            vocab_size=73,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=40,
            max_position_embeddings=60,
            norm_order="post",
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[hf_ffn.FFNTextConfig, dict[str, torch.Tensor]]:
        """A configuration, and a batch with padding and two segments."""
        config = self.get_config()
        shape = (self.batch_size, self.seq_length)
        attention_mask = torch.ones(shape, dtype=torch.long)
        attention_mask[0, 7:] = 0
        inputs = {
            "input_ids": torch.randint(1, config.vocab_size, shape),
            "attention_mask": attention_mask,
            "token_type_ids": torch.randint(0, config.type_vocab_size, shape),
        }
        return config, {name: tensor.to(torch_device) for name, tensor in inputs.items()}


class VisionModelTester:
    """Small configurations and batches of the image encoder, with the sizes that transformers' tests look up here."""

    batch_size = 5
    image_size = 24
    patch_size = 8
    hidden_size = 24
    num_hidden_layers = 2
    num_attention_heads = 3
    is_training = True

    def __init__(self) -> None:
        # One place for each patch, of which some are masked.
        self.mask_length = (self.image_size // self.patch_size) ** 2
        self.num_masks = 4
        # Patches, and the class token before them.
        self.seq_length = self.mask_length + 1

    def get_config(self) -> hf_ffn.FFNVisionConfig:
        """A pre-norm encoder, as ViT is, with the parts of a block that BERT and ViT leave out."""
        return hf_ffn.FFNVisionConfig(
            image_size=self.image_size,
            patch_size=self.patch_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=40,
            gated=True,
            layer_scale_init_value=0.5,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[hf_ffn.FFNVisionConfig, dict[str, torch.Tensor]]:
        """A configuration, and a batch of noise."""
        config = self.get_config()
        pixel_values = torch.rand(self.batch_size, config.num_channels, self.image_size, self.image_size)
        return config, {"pixel_values": pixel_values.to(torch_device)}


def transformers_own_loading() -> AbstractContextManager:
    """Leave our judgement of what was loaded out, for tests of what is initialised where a file holds nothing."""
    own = classmethod(PreTrainedModel.from_pretrained.__func__)
    return mock.patch.object(FFNPreTrainedModel, "from_pretrained", own)


class FFNModelTesterMixin(ModelTesterMixin):
    """transformers' tests, with what holds for all our classes."""

    # Without this, only models added since 2023 are asked whether they initialise every weight.
    test_can_init_all_missing_weights_before_2023 = True

    def test_can_init_all_missing_weights(self) -> None:
        with transformers_own_loading():
            super().test_can_init_all_missing_weights()

    def test_model_weights_reload_no_missing_tied_weights(self) -> None:
        with transformers_own_loading():
            super().test_model_weights_reload_no_missing_tied_weights()


class FFNTextModelTest(FFNModelTesterMixin, unittest.TestCase):
    """transformers' tests on the text encoder and its four heads."""

    all_model_classes = (
        hf_ffn.FFNTextModel,
        hf_ffn.FFNForMaskedLM,
        hf_ffn.FFNForSequenceClassification,
        hf_ffn.FFNForTokenClassification,
        hf_ffn.FFNForQuestionAnswering,
    )

    def setUp(self) -> None:
        self.model_tester = TextModelTester()

    def test_config(self) -> None:
        ConfigTester(self, config_class=hf_ffn.FFNTextConfig, hidden_size=36).run_common_tests()


class FFNVisionModelTest(FFNModelTesterMixin, unittest.TestCase):
    """transformers' tests on the image encoder and its head."""

    all_model_classes = (hf_ffn.FFNVisionModel, hf_ffn.FFNForImageClassification)
    # There are no token embeddings to resize.
    test_resize_embeddings = False

    def setUp(self) -> None:
        self.model_tester = VisionModelTester()

    def test_config(self) -> None:
        tester = ConfigTester(self, config_class=hf_ffn.FFNVisionConfig, has_text_modality=False, hidden_size=36)
        tester.run_common_tests()

    def test_model_get_set_embeddings(self) -> None:
        """The common test wants `nn.Embedding`; an image's patches are embedded by a module of another kind."""
        for model_class in self.all_model_classes:
            model = model_class(self.model_tester.get_config())
            assert isinstance(model.get_input_embeddings(), nn.Module)
            assert model.get_output_embeddings() is None
