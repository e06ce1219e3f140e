"""Run by `stage` in a fresh process with no network: a card's example, and before it the folder's own proof.

    python -P isolated.py without-hf-ffn EXAMPLE.py FOLDER AUTO_CLASS CASE.safetensors
    python -P isolated.py with-hf-ffn EXAMPLE.py

It imports nothing of hf_ffn, which is not there for those who will load the folder.
"""

import os
import runpy
import sys
from typing import Any

# What Python tells audit hooks of before anything leaves the process.
NETWORK = {
    f"socket.{what}"
    for what in ("connect", "getaddrinfo", "gethostbyname", "gethostbyaddr", "sendto", "sendmsg", "bind")
}


class WithoutHfFfn:
    """An import hook that makes hf_ffn look as if it were not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] == "hf_ffn":
            raise ModuleNotFoundError("hf_ffn is not installed here", name="hf_ffn")


def refuse_network(event: str, arguments: Any) -> None:
    """An audit hook, which nothing can remove: no connection leaves this process."""
    if event in NETWORK:
        raise PermissionError(f"the staged folder must load without network, and something asked for {event}")


def load(folder: str, auto_class: str, case: str) -> None:
    """Compare what the folder's model computes with the outputs in `case`, bit for bit."""
    import torch
    import transformers
    from safetensors.torch import load_file

    transformers.logging.disable_progress_bar()
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True, dtype="auto")
    tensors = load_file(case)
    expected = {name.removeprefix("output."): t for name, t in tensors.items() if name.startswith("output.")}
    inputs = {name.removeprefix("input."): t for name, t in tensors.items() if name.startswith("input.")}
    with torch.no_grad():
        outputs = model(**inputs)
    for name, tensor in expected.items():
        if name not in outputs:
            sys.exit(f"{name} is not among its outputs")
        if not torch.equal(outputs[name], tensor):
            difference = (outputs[name] - tensor).abs().max()
            sys.exit(f"{name} differs by up to {difference} from the model in memory")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.addaudithook(refuse_network)
    if sys.argv[1] == "without-hf-ffn":
        sys.meta_path.insert(0, WithoutHfFfn())
        load(*sys.argv[3:])
    runpy.run_path(sys.argv[2], run_name="__main__")
