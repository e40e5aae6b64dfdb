"""``import amldist.accelerate``: accelerate and the Trainer of transformers take the back end amldist by its name.

    import amldist.accelerate
    TrainingArguments(..., ddp_backend="amldist", use_cpu=True)        # or Accelerator(cpu=True, ...) with PartialState(backend="amldist")

accelerate has a list of back ends, and on CPUs replaces all others by Gloo, and then refuses what it has replaced. Without this module,
call ``torch.distributed.init_process_group("amldist")`` first and give no ``ddp_backend``.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import amldist.torch
from accelerate.state import PartialState  # type: ignore[import-not-found,import-untyped,unused-ignore]

NAME = amldist.torch.NAME
_prepare_usual_backend = PartialState._prepare_backend


def _prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: Optional[str] = None) -> Tuple[Optional[str], Any]:
    prepared, kind = _prepare_usual_backend(self, cpu, sagemaker_dp, backend)
    return (NAME if backend == NAME and prepared == "gloo" else prepared), kind


def _offer_on_command_lines() -> None:
    """``--ddp_backend amldist`` of programs that parse their options by TrainingArguments."""
    try:
        from transformers import TrainingArguments  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return
    choices = TrainingArguments.__dataclass_fields__["ddp_backend"].metadata.get("choices")
    if isinstance(choices, list) and NAME not in choices:
        choices.append(NAME)


PartialState._prepare_backend = _prepare_backend
_offer_on_command_lines()
