"""An agreed stop in PyTorch, Lightning and the Trainer: ranks hear of it at different times and end after the same step."""

from __future__ import annotations

import pytest
from conftest import need
from test_amldist_backend import run

# Each rank has a stop file of its own, and makes it after some step of its own; the last rank never does.
HEARS = """
import pathlib, tempfile
folder = pathlib.Path(tempfile.gettempdir(), "aml-dist-stop-test-" + os.environ["MASTER_PORT"])
folder.mkdir(exist_ok=True)
file = folder / f"stop-{rank}"
os.environ["AMLDIST_STOP_FILE"] = str(file)
def hear(step):
    time.sleep(0.06)  # the library looks for the file ten times a second
    if step == 5 + 2 * rank and rank < size - 1: file.touch()
def same_everywhere(step):
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(steps, torch.tensor([step]))
    assert len({int(each) for each in steps}) == 1 and 5 <= step < 40, steps
"""


@pytest.mark.parametrize("backend", ["amldist", "gloo", "cpu:amldist,cuda:amldist"])
def test_the_ranks_of_a_group_stop_at_one_step(backend):
    run(f"BACKEND = {backend!r}" + HEARS + """
start(BACKEND)
for step in range(1, 100):
    dist.all_reduce(torch.ones(4))
    hear(step)
    if amldist.torch.should_stop(): break
same_everywhere(step)
assert amldist.torch.should_stop() and (rank > 0 or amldist.stop_requested())
dist.destroy_process_group()
print("fine")
""", 3)


def test_without_a_group_a_process_answers_for_itself():
    run(HEARS + """
assert not amldist.torch.should_stop()
file.touch()
time.sleep(0.2)
assert amldist.torch.should_stop() and amldist.stop_requested()
print("fine")
""", 1)


TRAINER = HEARS + """
import amldist.transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, given, wanted):
        out = self.layer(given).squeeze(-1)
        return {"loss": (out - wanted).square().mean(), "out": out}

class Hears(TrainerCallback):
    def on_step_end(self, args, state, control, **others): hear(state.global_step)

torch.manual_seed(5)
data = [{"given": torch.randn(4), "wanted": torch.randn(())} for _ in range(32)]
start("gloo", init_method="env://")
def trainer(stop):
    arguments = TrainingArguments(str(folder / "out"), use_cpu=True, max_steps=60, per_device_train_batch_size=4, report_to=[],
                                  save_strategy="no", disable_tqdm=True, seed=1)
    return Trainer(Model(), arguments, train_dataset=data, callbacks=[Hears(), stop])
stop = amldist.transformers.StopCallback()
first = trainer(stop)
first.train()
step = first.state.global_step
same_everywhere(step)
assert stop.has_stopped and [each.name for each in (folder / "out").iterdir()] == [f"checkpoint-{step}"]
dist.barrier()
again = trainer(amldist.transformers.StopCallback())
again.train(resume_from_checkpoint=True)  # it stops again at once, and has gone on from there
assert step < again.state.global_step <= step + 3, again.state.global_step
dist.barrier()
dist.destroy_process_group()
print("fine")
"""


def test_the_trainer_saves_and_ends_at_one_step_on_all_ranks():
    need("torch", "transformers", "accelerate")
    run(TRAINER, 2, AMLDIST_TEST_LIMIT="200")


LIGHTNING = HEARS + """
import logging, warnings
import lightning.pytorch as pl
import amldist.lightning
warnings.simplefilter("ignore")

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def on_train_batch_end(self, *others): hear(self.trainer.global_step)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.01)

data = torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=2)
stop = amldist.lightning.StopCallback(str(folder / "stopped.ckpt"))
trainer = pl.Trainer(accelerator="cpu", devices=size, strategy="ddp", max_steps=90, min_steps=80, logger=False, callbacks=[stop],
                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(folder))
trainer.fit(Model(), data)
step = trainer.global_step
same_everywhere(step)
assert stop.has_stopped and torch.load(folder / "stopped.ckpt", weights_only=False)["global_step"] == step
dist.barrier()
dist.destroy_process_group()
print("fine")
"""


def test_lightning_saves_and_ends_at_one_step_on_all_ranks():
    need("torch", "lightning")
    run(LIGHTNING, 2, AMLDIST_TEST_LIMIT="200")
