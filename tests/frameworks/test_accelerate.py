"""Hugging Face's Trainer and accelerate over libdist, by the one line that docs/pytorch.md has for them."""

from __future__ import annotations

from conftest import need
from test_amldist_backend import run

TRAINER = """
FIRST
import tempfile
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, given, wanted):
        out = self.layer(given).squeeze(-1)
        return {"loss": (out - wanted).square().mean(), "out": out}

torch.manual_seed(5)
data = [{"given": torch.randn(4), "wanted": torch.randn(())} for _ in range(32)]
losses = {}
for way in WAYS:
    if way != "amldist first": options = {"ddp_backend": way}
    else:
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 7)
        start("amldist", init_method="env://")
        options = {}
    arguments = TrainingArguments(tempfile.mkdtemp(), use_cpu=True, num_train_epochs=2, per_device_train_batch_size=4, report_to=[], save_strategy="no",
                                  logging_steps=1, disable_tqdm=True, seed=1, **options)
    trainer = Trainer(Model(), arguments, train_dataset=data)
    trainer.train()
    assert arguments.world_size == size and type(dist.group.WORLD).__name__ == ("ProcessGroup" if way == "gloo" else "AmldistGroup"), way
    losses[way] = [step["loss"] for step in trainer.state.log_history if "loss" in step]
    dist.barrier()
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    from accelerate.state import AcceleratorState, PartialState
    AcceleratorState._reset_state(reset_partial_state=True)
(mine, *others) = losses.values()
assert len(mine) == 8 and all(torch.allclose(torch.tensor(mine), torch.tensor(each), atol=1e-4) for each in others), losses
print("fine")
"""


def test_the_trainer_takes_the_back_end_by_its_name_and_has_gloo_s_losses():
    need("torch", "transformers", "accelerate")
    run(TRAINER.replace("FIRST", "import amldist.accelerate").replace("WAYS", '("amldist", "gloo")'), AMLDIST_TEST_LIMIT="200")


def test_without_the_line_the_group_is_made_first():
    need("torch", "transformers", "accelerate")
    run(TRAINER.replace("FIRST", "").replace("WAYS", '("amldist first", "gloo")'), AMLDIST_TEST_LIMIT="200")


def test_a_command_line_may_name_it():
    need("torch", "transformers", "accelerate")
    run("""
        import amldist.accelerate
        from transformers import HfArgumentParser, TrainingArguments
        parsed, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--output_dir", "out", "--ddp_backend", "amldist"], look_for_args_file=False)
        assert parsed.ddp_backend == "amldist"
        print("fine")
    """, 1, AMLDIST_TEST_LIMIT="200")
