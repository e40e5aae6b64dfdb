#!/usr/bin/env python3
"""Data-parallel training with TensorFlow's MultiWorkerMirroredStrategy: a plane is fitted to points.

Who the other workers are comes from TF_CONFIG. The loop is written by hand with strategy.run: Keras 3's model.fit does
not work under this strategy ("Attempt to convert a value (PerReplica:...) with an unsupported type"); tf-keras does.
Exit status 1: the workers disagree about the plane, or the loss has not fallen.
"""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

STEPS = 40


def prints(resolver) -> bool:
    """One task of the cluster shows the progress: the chief, or without one the first worker."""
    if resolver.task_type == "worker":
        return resolver.task_id == 0 and "chief" not in resolver.cluster_spec().jobs
    return resolver.task_type in (None, "chief")


def main() -> int:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    size = strategy.num_replicas_in_sync
    is_first = prints(resolver)

    points = tf.random.stateless_normal((64, 3), seed=(7, resolver.task_id or 0))  # each worker has its own
    heights = tf.linalg.matvec(points, tf.constant([2.0, -3.0, 0.5]))
    with strategy.scope():
        plane = tf.Variable(tf.zeros(3))

    @tf.function
    def train_step():
        def replica_step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.linalg.matvec(points, plane) - heights) ** 2)
            context = tf.distribute.get_replica_context()
            gradient, = context.all_reduce("mean", tape.gradient(loss, [plane]))
            plane.assign_sub(0.1 * gradient)
            return loss
        return strategy.reduce("mean", strategy.run(replica_step), axis=None)

    losses = []
    for step in range(1, STEPS + 1):
        losses.append(float(train_step()))
        if is_first and step % 10 == 0:
            print(f"step {step:3d}/{STEPS}   loss {losses[-1]:.6f}", flush=True)

    @tf.function
    def planes():
        return strategy.gather(strategy.run(lambda: tf.reshape(tf.reduce_sum(plane.read_value()), [1])), axis=0)

    weights = planes().numpy().tolist()
    good = len(weights) == size and len(set(weights)) == 1 and losses[-1] < losses[0] / 100
    if is_first:
        print("result: " + json.dumps({
            "framework": "tensorflow", "version": tf.__version__, "world_size": size,
            "cluster": resolver.cluster_spec().as_dict(), "loss": [losses[0], losses[-1]], "weights": weights,
            "good": good}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
