"""Updates of the agent as programs for XLA, traced by TensorFlow on a CPU; nothing is computed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import gin
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from agents import configuration
from agents.sequences import Packed, Sequence, SequenceShape
from agents.storage.run_folder import REPOSITORY
from benchmarks import workloads

NETWORKS = {
    "quickstart": workloads.QUICKSTART,
    "atari_small": workloads.ATARI_SMALL,
    "the paper's": dataclasses.replace(workloads.PAPER, batch=32, shape=SequenceShape(20, 80, 40, 5)),
}
_CHOOSES = "train.scaling = @"
SCALINGS = {
    name: gin.get_configurable(statement.removeprefix(_CHOOSES))
    for name, statement in configuration.list_scalings(REPOSITORY / "configs").items()
    if statement.startswith(_CHOOSES)  # not those that are a file: variants
}
TYPES = {"PRED": "bool", "U8": "uint8", "S32": "int32", "S64": "int64", "F32": "float32", "F64": "float64"}
_PIECE, _NEW_PIECES = 240, 10  # bytes of half a line of a raw frame; one in so many is new


@dataclasses.dataclass(frozen=True)
class Program:
    """A traced update.

    Attributes:
      module: serialised `HloModuleProto`, as XLA takes it before it optimises.
      arguments, results: (type, shape) of each.
      replaced: numbers of the arguments that results replace, variables, and of these results.
      replicas: devices that run it together.
      operations: floating point operations of matrix products and convolutions.
      float64: number of operations with float64 results of more than one number per head.
    """

    module: bytes
    arguments: list[tuple[str, list[int]]]
    results: list[tuple[str, list[int]]]
    replaced: dict[int, int]
    replicas: int
    operations: float
    float64: int

    def write(self, folder: Path) -> None:
        """Writes what `compiling` reads."""
        (folder / "module").write_bytes(self.module)
        names = "arguments", "results", "replaced", "replicas"
        (folder / "program.json").write_text(json.dumps({name: getattr(self, name) for name in names}))


def trace(network: str, scaling: str, dtype: str, packed: bool = False, replicas: int = 1) -> Program:
    """The update of ten heads.

    Args:
      network: one of `NETWORKS`, with its windows.
      scaling: one of `SCALINGS`.
      dtype: "float32" or "bfloat16", of the torso's arithmetic.
      packed: frames arrive as pieces, and the program puts them together.
      replicas: devices among which the batch is shared out.
    """
    work = dataclasses.replace(NETWORKS[network], batch=NETWORKS[network].batch // replicas)
    with _replicas(replicas) as strategy:
        options = {"compute_dtype": dtype, "jit_compile": False, "strategy": strategy}
        agent = workloads.agent(work, scaling=SCALINGS[scaling], **options)
        batch = workloads.windows(work)
        if packed:
            batch = batch._replace(steps=batch.steps._replace(observation=_pieces(batch)))
        update = tf.function(
            lambda batch: agent.strategy.run(lambda: agent._update(agent.sequences(batch), None)),
            jit_compile=True,
            autograph=False,
        )
        serialised = update.experimental_get_compiler_ir(batch)(stage="hlo_serialized")
    module = hlo_pb2.HloModuleProto.FromString(serialised)
    instructions = [each for computation in module.computations for each in computation.instructions]
    for each in instructions:
        if each.opcode == "copy":  # StableHLO has none; this keeps which argument a result replaces
            each.opcode = "reshape"
    for channel, each in enumerate(each for each in instructions if each.opcode == "all-reduce"):
        each.channel_id, each.use_global_device_ids = channel + 1, True
        each.replica_groups.add().replica_ids.extend(range(replicas))
    shape = module.host_program_shape
    return Program(
        module.SerializeToString(),
        [_shape(each) for each in shape.parameters],
        [_shape(each) for each in shape.result.tuple_shapes],
        {
            entry.parameter_number: entry.output_shape_index[0] if entry.output_shape_index else 0
            for entry in module.input_output_alias.entries
        },
        replicas,
        workloads.operations(work),
        sum(_shape(each.shape)[0] == "float64" and len(each.shape.dimensions) > 1 for each in instructions),
    )


@contextlib.contextmanager
def _replicas(number: int) -> Iterator[tf.distribute.Strategy]:
    """A strategy whose replicas all run what is traced for one, and exchange sums as a GPU's or a TPU's do."""

    def all_reduce(_: Any, operation: tf.distribute.ReduceOp, values: Any) -> Any:
        assert operation == tf.distribute.ReduceOp.SUM
        keys = {"group_size": number, "group_key": 1, "instance_key": 1, "ordering_token": []}
        keys |= {"merge_op": "Add", "final_op": "Id"}
        return tf.nest.map_structure(lambda x: tf.raw_ops.CollectiveReduceV2(input=x, **keys), values)

    if number == 1:
        yield tf.distribute.get_strategy()
        return
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    kind, keras = type(strategy.extended), tf.compat.v2.__internal__.distribute
    with (
        mock.patch.object(kind, "_num_replicas_in_sync", property(lambda _: number)),
        mock.patch.object(tf.distribute.ReplicaContext, "all_reduce", all_reduce),
        # Else Keras sums gradients outside of the replica.
        mock.patch.object(keras, "strategy_supports_no_merge_call", lambda: True),
    ):
        yield strategy


def _shape(shape: Any) -> tuple[str, list[int]]:
    name = xla_data_pb2.PrimitiveType.Name(shape.element_type)
    return TYPES.get(name, name), list(shape.dimensions)


def _pieces(windows: Sequence) -> Packed:
    """Frames as the replay packs raw ones."""
    batch, rows, *frame = windows.steps.observation.shape
    count = tf.TensorShape(frame).num_elements() // _PIECE
    pieces = tf.zeros((batch * rows * count // _NEW_PIECES, _PIECE // 8), tf.int64)
    return Packed(pieces, tf.zeros((batch, rows, count), tf.int32))
