#!/usr/bin/env python3
"""Parameter servers with a coordinator: the chief hands steps to the workers, the variables live on the servers.

The roles come from TF_CONFIG. Exit status 1 (of the chief): the loss has not fallen.
"""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

EPOCHS, STEPS = 4, 20


def coordinate(resolver) -> int:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        plane = tf.Variable(tf.zeros(3))
        served = tf.Variable(tf.zeros([]))  # loss summed over the steps of an epoch

    @tf.function
    def step():
        points = tf.random.normal((64, 3))
        heights = tf.linalg.matvec(points, tf.constant([2.0, -3.0, 0.5]))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(points, plane) - heights) ** 2)
        plane.assign_sub(0.05 * tape.gradient(loss, plane))
        served.assign_add(loss)

    losses = []
    for epoch in range(1, EPOCHS + 1):
        served.assign(0.0)
        for _ in range(STEPS):
            coordinator.schedule(step)
        coordinator.join()
        losses.append(float(served.numpy()) / STEPS)
        print(f"epoch {epoch}/{EPOCHS}   loss {losses[-1]:.6f}", flush=True)
    spec = resolver.cluster_spec().as_dict()
    good = losses[-1] < losses[0] / 10
    print("result: " + json.dumps({
        "framework": "tensorflow", "version": tf.__version__, "world_size": sum(len(hosts) for hosts in spec.values()),
        "cluster": spec, "loss": [losses[0], losses[-1]], "variable_on": plane.device, "good": good}), flush=True)
    return 0 if good else 1


def main() -> int:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                                      protocol="grpc")
        server.join()  # never returns: the step ends when the chief has ended
    return coordinate(resolver)


if __name__ == "__main__":
    sys.exit(main())
