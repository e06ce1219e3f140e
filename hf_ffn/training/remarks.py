"""What may be done to samples that their owner does not expect: by its name in results, for people."""

REMARKS = {
    "cut": "texts longer than max_length, and cut",
    "in_windows": "texts longer than max_length, read in windows",
    "lost_labels": "words without their labels, cut off or of no token",
    "lost_entities": "entities with such words",
    "transparent": "transparent images, put on white",
    "over_8_bits": "images of more than 8 bits, scaled to 8",
    "several_frames": "images of several frames or pages, of which the first counts",
}
