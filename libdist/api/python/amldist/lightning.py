"""``import amldist.lightning``: Lightning's Trainer saves and ends when the step should stop.

    Trainer(..., callbacks=[amldist.lightning.StopCallback("/scratch/stopped.ckpt")])

``trainer.fit(model, ckpt_path="/scratch/stopped.ckpt")`` goes on from there. The key ``stop=`` of ``srun --aml-dist`` says when.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Optional

from amldist.torch import should_stop


def _callback_class() -> Any:
    """Of the package that the program uses: Lightning has two names."""
    names = ("lightning.pytorch", "pytorch_lightning")
    used = [name for name in names if name in sys.modules]
    for name in (*used, *names):
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError:
            continue
    raise ImportError("amldist: this Python has no Lightning (pip install lightning)")


_Callback: Any = _callback_class()


class StopCallback(_Callback):  # type: ignore[misc,unused-ignore]
    """After each batch asks whether the ranks should stop; then all of them write ``checkpoint``, if one is given, after the
    same batch, and the Trainer ends, also before its ``min_epochs`` and ``min_steps``; a validation that ends an epoch still runs.
    ``has_stopped`` says so afterwards."""

    def __init__(self, checkpoint: Optional[str] = None) -> None:
        self.checkpoint = checkpoint
        self.has_stopped = False

    def on_train_batch_end(self, trainer: Any, *_others: Any) -> None:
        if self.has_stopped or not should_stop():
            return
        self.has_stopped = True
        if self.checkpoint is not None:
            trainer.save_checkpoint(self.checkpoint)
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None  # the end comes whatever the minimum is
        trainer.should_stop = True
