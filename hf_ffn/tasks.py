"""Tasks and the heads for them, as data alone: the command reads this file for its help, without importing torch."""

# The names of our model classes by model type and by task, as `hf-ffn convert --task` calls it; "base" is the encoder
# without a head.
HEADS = {
    "hf_ffn_text": {
        "base": "FFNTextModel",
        "masked-lm": "FFNForMaskedLM",
        "sequence-classification": "FFNForSequenceClassification",
        "token-classification": "FFNForTokenClassification",
        "question-answering": "FFNForQuestionAnswering",
    },
    "hf_ffn_vision": {
        "base": "FFNVisionModel",
        "image-classification": "FFNForImageClassification",
        "image-classification-with-teacher": "FFNForImageClassificationWithTeacher",
        "audio-classification": "FFNForAudioClassification",
    },
}
