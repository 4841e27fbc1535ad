import sys, os

for pool in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[pool] = "1"
import functools, numpy as np
from agents.running.startup import quiet

quiet()
import tensorflow as tf, networks
from agents.targets import SequenceShape
from benchmarks import workloads
from benchmarks.side_by_side import times
from benchmarks.workloads import Work

S = SequenceShape(5, 20, 10, 5)
WORKS = dict(
    q=Work("quickstart", (10, 10, 6), 6, networks.small_torso, 64, 64, 32, 8, S),
    m=Work(
        "minatar",
        (10, 10, 6),
        6,
        functools.partial(networks.ConvTorso, channels=(16,), kernel_sizes=(3,), strides=(2,), units=128),
        64,
        64,
        32,
        8,
        S,
    ),
    s=workloads.SMALL,
    p=workloads.PAPER,
    a=Work("atari_small", (84, 84, 2), 6, networks.dqn_torso, 128, 64, 64, 16, SequenceShape(5, 20, 20, 5)),
)
for key in sys.argv[1]:
    work = WORKS[key]
    seq = workloads.windows(work)
    ways = [tf.function(workloads.agent(work, jit_compile=j).train) for j in (False, None)]
    for i in range(3):
        print([float(w(seq).loss) for w in ways])
    r = times(*(lambda w=w: w(seq).loss.numpy() for w in ways), calls=1 if key == "p" else 10)
    plain, split = [np.array([c for c, _ in x]) for x in r]
    print(
        work.name,
        "cpu ms",
        np.median(plain) * 1e3,
        np.median(split) * 1e3,
        "ratio",
        np.median(split / plain),
        (split / plain).min(),
        (split / plain).max(),
    )
