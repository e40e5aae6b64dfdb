#!/usr/bin/env python3
"""Fits a line with TensorFlow on all workers, as one writes it for Azure Machine Learning: who the others are is
in TF_CONFIG, which MultiWorkerMirroredStrategy reads by itself. The loop is our own, as Keras 3 has none for this strategy.

Exit status 1: the fit failed.
"""
import argparse
import json
import os

import tensorflow as tf


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        slope, offset = tf.Variable(0.0), tf.Variable(0.0)

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((slope * x + offset - (3 * x + 1)) ** 2)
        gradients = tape.gradient(loss, [slope, offset])
        context = tf.distribute.get_replica_context()
        for variable, gradient in zip([slope, offset], context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)):
            variable.assign_sub(0.3 * gradient)
        return loss

    @tf.function
    def train(x):
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(step, args=(x,)), axis=None)

    generator = tf.random.Generator.from_seed(task["index"])
    for _ in range(arguments.steps):
        loss = train(generator.uniform([64], -1.0, 1.0)).numpy()
    print(f"{task['type']} {task['index']} of {strategy.num_replicas_in_sync}: y = {slope.numpy():.3f} x + "
          f"{offset.numpy():.3f}, loss {loss:.2e}", flush=True)
    return 0 if loss < 1e-3 else 1


if __name__ == "__main__":
    raise SystemExit(main())
