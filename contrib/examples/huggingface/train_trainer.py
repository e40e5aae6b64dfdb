#!/usr/bin/env python3
"""Hugging Face's Trainer: a small BERT learns which of two words a sentence holds more often.

Model and tokenizer are made here, nothing is downloaded. The arguments are those of TrainingArguments, --local_rank
included. Exit status 1: the processes disagree about the model, or the loss has not fallen.
"""
import json
import os
import random
import sys
import tempfile

import torch
import torch.distributed as dist
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (BertConfig, BertForSequenceClassification, HfArgumentParser, PreTrainedTokenizerFast, Trainer,
                          TrainerCallback, TrainingArguments)

WORDS = ["[PAD]", "[UNK]", "ebb", "flow", "moon", "sand", "wind", "gull"]


def tokenizer() -> PreTrainedTokenizerFast:
    plain = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]")


def sentences(count: int, convert: PreTrainedTokenizerFast) -> list:
    chance = random.Random(7)
    out = []
    for _ in range(count):
        label = chance.randrange(2)
        words = [WORDS[2 + label]] * 3 + [WORDS[3 - label]] + chance.choices(WORDS[4:], k=4)
        chance.shuffle(words)
        out.append({**convert(" ".join(words), return_token_type_ids=False), "labels": label})
    return out


class Progress(TrainerCallback):
    """Keeps the losses that Trainer logs; its own printer shows them on every process."""

    def __init__(self) -> None:
        self.losses = []

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))
            if state.is_world_process_zero:
                print(f"step {state.global_step:3d}/{state.max_steps}   loss {self.losses[-1]:.4f}", flush=True)


def main() -> int:
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(
        output_dir=tempfile.gettempdir(), max_steps=40, per_device_train_batch_size=16, learning_rate=1e-2,
        logging_steps=10, logging_strategy="steps", save_strategy="no", report_to="none", disable_tqdm=True,
        use_cpu=not torch.cuda.is_available())  # on CPUs each process would train alone without it
    arguments, = parser.parse_args_into_dataclasses()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    convert = tokenizer()
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16))
    progress = Progress()
    trainer = Trainer(model=model, args=arguments, train_dataset=sentences(1024, convert), processing_class=convert,
                      callbacks=[progress])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()

    own = {"weights": sum(each.double().sum().item() for each in model.parameters()),
           "local_rank": arguments.local_process_index}
    everyone = [own]
    if dist.is_initialized():
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, own)
    weights = [each["weights"] for each in everyone]
    losses = progress.losses
    good = len(weights) == arguments.world_size and len(set(weights)) == 1 and losses[-1] < losses[0] / 2
    if arguments.process_index == 0:
        print("result: " + json.dumps({
            "framework": "transformers", "version": transformers.__version__, "world_size": arguments.world_size,
            "local_ranks": [each["local_rank"] for each in everyone], "loss": [losses[0], losses[-1]],
            "weights": weights, "good": good}), flush=True)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    status = main()
    # PyTorch 2 with gloo sometimes aborts while Python shuts down (status 134), when all work is done.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
