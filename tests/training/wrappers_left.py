"""Run a script, and print how many of torch's wrappers for several processes are left when their group ends."""

import gc
import runpy
import sys
from typing import Any

import torch.distributed
from torch.nn.parallel import DistributedDataParallel

_destroy = torch.distributed.destroy_process_group


def _count_and_destroy(*arguments: Any) -> None:
    wrappers = [each for each in gc.get_objects() if type(each) is DistributedDataParallel]
    print(f"wrappers left: {len(wrappers)}", flush=True)
    _destroy(*arguments)


if __name__ == "__main__":
    torch.distributed.destroy_process_group = _count_and_destroy
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
