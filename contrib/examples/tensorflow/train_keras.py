#!/usr/bin/env python3
"""model.fit under MultiWorkerMirroredStrategy, with Keras 2 (the package tf-keras).

TF_USE_LEGACY_KERAS=1 makes tf.keras the old Keras; Keras 3 cannot do this. Exit status 1: the loss has not fallen.
"""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
import tf_keras


def main() -> int:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id or 0
    points = tf.random.stateless_normal((512, 3), seed=(7, 7))
    heights = tf.linalg.matvec(points, tf.constant([2.0, -3.0, 0.5]))
    data = tf.data.Dataset.from_tensor_slices((points, heights)).repeat().batch(32 * strategy.num_replicas_in_sync)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
        model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss="mse")
    history = model.fit(data, epochs=3, steps_per_epoch=16, verbose=2 if rank == 0 else 0).history["loss"]

    def own_weights():
        return tf.reshape(tf.add_n([tf.reduce_sum(variable) for variable in model.trainable_variables]), [1])

    @tf.function
    def all_weights():
        return strategy.gather(strategy.run(own_weights), axis=0)

    weights = all_weights().numpy().tolist()
    good = len(set(weights)) == 1 and history[-1] < history[0] / 10
    if rank == 0:
        print("result: " + json.dumps({
            "framework": "tf-keras", "version": tf_keras.__version__, "world_size": strategy.num_replicas_in_sync,
            "loss": [history[0], history[-1]], "weights": weights, "good": good}), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
