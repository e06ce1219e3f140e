"""What the benchmark should show on a processor with bfloat16 and int8 instructions, and whether it did."""

import statistics
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limit:
    """The most time that one row of a table may take, over another's.

    Attributes:
        table: how its title ends.
        ours: name of the row.
        over: name of the row that it is compared with.
        at_most: the ratio.
    """

    table: str
    ours: str
    over: str
    at_most: float


BLOCK, BOUND = "hf_ffn, optimize_for_inference", "bound: bare products"
FLOAT32, BFLOAT16, INT8 = "hf_ffn, optimised", "hf_ffn, optimised, bfloat16", "hf_ffn, optimised, int8"

# Those over CTranslate2 and OpenVINO, sorted, were set for 64 sequences: `ragged-many`.
LIMITS = [
    *(Limit(f"{tokens} tokens, float32", BLOCK, BOUND, 1.05) for tokens in (128, 512, 4096)),
    *(Limit(f"{tokens} tokens, bfloat16", BLOCK, BOUND, 1.05) for tokens in (128, 512, 4096)),
    Limit("ragged, short", FLOAT32, "transformers", 0.39),
    Limit("ragged, short", BFLOAT16, "transformers", 0.21),
    Limit("ragged, short", INT8, "transformers", 0.14),
    Limit("ragged, longer", FLOAT32, "transformers", 0.30),
    Limit("ragged, longer", BFLOAT16, "transformers", 0.17),
    Limit("ragged, short", FLOAT32, "CTranslate2", 0.85),
    Limit("ragged, short", INT8, "CTranslate2, int8", 0.85),
    Limit("ragged, longer", FLOAT32, "CTranslate2", 0.60),
    Limit("ragged, short", FLOAT32, "OpenVINO, sorted in 2", 0.60),
    Limit("ragged, longer", FLOAT32, "OpenVINO, sorted in 2", 0.50),
    Limit("one sequence of 25", FLOAT32, "OpenVINO", 1.00),
    Limit("even, 8 of 64", FLOAT32, "OpenVINO", 1.00),
    Limit("even, 8 of 64", BFLOAT16, "OpenVINO, bfloat16", 1.00),
    Limit("4 × 3 × 224 × 224", FLOAT32, "OpenVINO", 1.00),
    Limit("4 × 3 × 224 × 224", BFLOAT16, "OpenVINO, bfloat16", 1.00),
    Limit("forward and backward, float32", "feed_forward_memory='input'", "feed_forward_memory='full'", 1.05),
    Limit("forward and backward, float32", "feed_forward_memory='pre_activation'", "feed_forward_memory='full'", 0.95),
    Limit("when padded), float32", "hf_ffn, packed, 'pre_activation', fused", "transformers, padded", 0.45),
    Limit("when padded), bfloat16 autocast", "hf_ffn, packed, fused AdamW", "transformers, padded", 0.45),
    Limit("has imported everything)", "hf_ffn, converting the same", "transformers' BertModel", 1.1),
    Limit("has imported everything)", "hf_ffn, its native format", "transformers' BertModel", 1.1),
    Limit("(a fresh process)", "import hf_ffn", "from transformers import BertModel", 1.1),
]  # fmt: skip


def check(sections: dict[str, list[dict[str, Any]]]) -> list[tuple[Limit, float | None]]:
    """The limits whose rows are in the tables, with the ratio found; None where one of the two was not measured."""
    tables = [table for found in sections.values() for table in found]
    found = []
    for limit in LIMITS:
        for table in tables:
            times = {row["name"]: row["times"] for row in table["rows"]}
            if table["title"].endswith(limit.table) and limit.ours in times and limit.over in times:
                # Of the two in the same round; over a third one's time, its noise would come in.
                ratios = [ours / over for ours, over in zip(times[limit.ours], times[limit.over], strict=False)]
                found.append((limit, statistics.median(ratios) if ratios else None))
    return found


def told(found: list[tuple[Limit, float | None]]) -> str:
    """The same for people, with what was not reached marked."""
    lines = ["what it should show on a processor with bfloat16 and int8 instructions: found, at most"]
    for limit, ratio in found:
        shown = "    –" if ratio is None else f"{ratio:5.2f}"
        mark = "not measured" if ratio is None else "NOT REACHED" if ratio > limit.at_most else ""
        lines.append(f"  {shown}  {limit.at_most:4.2f}  {mark:12}  {limit.table}: {limit.ours} over {limit.over}")
    return "\n".join(lines)
