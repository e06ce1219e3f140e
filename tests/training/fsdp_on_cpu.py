"""Run a script under accelerate's FSDP on CPU: `accelerate launch --config_file … fsdp_on_cpu.py SCRIPT FLAGS`.

accelerate shards on accelerators alone, although torch does it on CPU as well. Taking the CPU processes for GPU ones
when accelerate decides, and nowhere else, makes it go its own FSDP way with gloo.
"""

import runpy
import sys
from typing import Any

from accelerate.state import PartialState
from accelerate.utils import DistributedType

_init = PartialState.__init__


def _init_for_sharding(self: PartialState, *args: Any, **kwargs: Any) -> None:
    is_first = not self.initialized
    _init(self, *args, **kwargs)
    if is_first and self.distributed_type == DistributedType.MULTI_CPU:
        self._shared_state["distributed_type"] = DistributedType.MULTI_GPU


if __name__ == "__main__":
    PartialState.__init__ = _init_for_sharding
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
