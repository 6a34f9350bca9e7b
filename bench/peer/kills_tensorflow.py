"""A task of TensorFlow's ParameterServerStrategy: the tutorial "Parameter server training". The
coordinator schedules steps, joins every few steps, and writes checkpoints; started again, it
continues from the newest one."""
import hashlib
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
os.environ["GRPC_FAIL_FAST"] = "use_caller"
import note  # noqa: E402
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

BATCH, AT_ONCE = 16, 5


def serve(resolver):
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type,
                         task_index=resolver.task_id, protocol="grpc", start=True).join()


def coordinate(resolver):
    o = note.options()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    made = numpy.random.default_rng(2)
    with strategy.scope():
        tf.random.set_seed(1)
        shapes = ((64, 128), (128,), (128, 10), (10,))
        weights = [tf.Variable(made.normal(0, 0.1, s).astype("float32")) for s in shapes]
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(weights)

    @tf.function
    def step():
        def replica():
            x = tf.random.normal((BATCH, 64))
            y = tf.cast(x[:, 0] > 0, tf.int32)
            with tf.GradientTape() as tape:
                hidden = tf.nn.relu(x @ weights[0] + weights[1])
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
                    y, hidden @ weights[2] + weights[3]))
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return loss
        return strategy.run(replica)

    saved = tf.train.Checkpoint(optimizer=optimizer, weights=weights)
    manager = tf.train.CheckpointManager(saved, os.path.join(os.getcwd(), "saved"), max_to_keep=3)
    if manager.latest_checkpoint:
        saved.restore(manager.latest_checkpoint)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    n = int(optimizer.iterations.numpy())
    note.note("step", n=n, rank=0)
    while n < o["steps"]:
        before = n
        for _ in range(AT_ONCE):
            coordinator.schedule(step)
        coordinator.join()
        n = int(optimizer.iterations.numpy())
        note.note("step", n=n, rank=0)
        if n // o["save_steps"] > before // o["save_steps"]:
            manager.save()
    digest = hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights)).hexdigest()
    for rank in range(2):
        note.note("end", rank=rank, digest=digest)


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] in ("worker", "ps"):
        serve(resolver)
    else:
        coordinate(resolver)


main()
