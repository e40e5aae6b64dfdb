"""``import amldist.transformers``: the Trainer saves and ends when the step should stop.

    Trainer(..., callbacks=[amldist.transformers.StopCallback()])

``trainer.train(resume_from_checkpoint=True)`` goes on from there. The key ``stop=`` of ``srun --aml-dist`` says when.
"""

from __future__ import annotations

from typing import Any

from amldist.torch import should_stop
from transformers import TrainerCallback  # type: ignore[import-not-found,import-untyped,unused-ignore]


class StopCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """After each step asks whether the ranks should stop; then the Trainer saves a checkpoint, after the same step on all
    ranks, and ends. ``has_stopped`` says so afterwards."""

    def __init__(self) -> None:
        self.has_stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_others: Any) -> Any:
        if should_stop():
            self.has_stopped = control.should_save = control.should_training_stop = True
        return control
