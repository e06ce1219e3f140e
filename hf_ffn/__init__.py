"""The feed-forward block as a first-class Hugging Face component, and the encoders built from it."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForAudioClassification,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.utils import is_vision_available

from .configuration_ffn import FFNConfig, FFNTextConfig, FFNVisionConfig
from .conversion import convert, export_pretrained
from .equivalence import EquivalenceReport, verify
from .families import FAMILIES
from .inference import InferenceReport, optimize_for_inference
from .modeling_ffn import Encoder, EncoderBlock, FeedForward, SelfAttention
from .modeling_ffn_text import (
    FFNForMaskedLM,
    FFNForQuestionAnswering,
    FFNForSequenceClassification,
    FFNForTokenClassification,
    FFNTextModel,
)
from .modeling_ffn_vision import (
    FFNForAudioClassification,
    FFNForImageClassification,
    FFNForImageClassificationWithTeacher,
    FFNVisionModel,
)

__version__ = "0.1.0"

AutoConfig.register("hf_ffn_text", FFNTextConfig)
AutoConfig.register("hf_ffn_vision", FFNVisionConfig)
AutoModel.register(FFNTextConfig, FFNTextModel)
AutoModel.register(FFNVisionConfig, FFNVisionModel)
AutoModelForMaskedLM.register(FFNTextConfig, FFNForMaskedLM)
AutoModelForSequenceClassification.register(FFNTextConfig, FFNForSequenceClassification)
AutoModelForTokenClassification.register(FFNTextConfig, FFNForTokenClassification)
AutoModelForQuestionAnswering.register(FFNTextConfig, FFNForQuestionAnswering)
# Of two the one that config.json names, and else the first
AutoModelForImageClassification.register(
    FFNVisionConfig, (FFNForImageClassification, FFNForImageClassificationWithTeacher)
)
AutoModelForAudioClassification.register(FFNVisionConfig, FFNForAudioClassification)
if is_vision_available():
    # Not from the top, where versions before 5.18 ask for torchvision
    from transformers.models.auto.image_processing_auto import AutoImageProcessor

    from .image_processing_ffn import FFNImageProcessor

    AutoImageProcessor.register(
        FFNVisionConfig, image_processor_classes={"pil": FFNImageProcessor, "torchvision": FFNImageProcessor}
    )

__all__ = [
    "FAMILIES",
    "Encoder",
    "EncoderBlock",
    "EquivalenceReport",
    "FFNConfig",
    "FFNForAudioClassification",
    "FFNForImageClassification",
    "FFNForImageClassificationWithTeacher",
    "FFNForMaskedLM",
    "FFNForQuestionAnswering",
    "FFNForSequenceClassification",
    "FFNForTokenClassification",
    "FFNTextConfig",
    "FFNTextModel",
    "FFNVisionConfig",
    "FFNVisionModel",
    "FeedForward",
    "InferenceReport",
    "SelfAttention",
    "__version__",
    "convert",
    "export_pretrained",
    "optimize_for_inference",
    "verify",
]
