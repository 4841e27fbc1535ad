"""Compiles a program for a device that is not there; prints what its compiler says, as JSON.

    .venv-accelerators/bin/python benchmarks/accelerators/compiling.py TARGET FOLDER

A file of its own, in an environment of its own: JAX brings the compilers, and needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
} | os.environ

import jax  # noqa: E402  # reads them
import jax.numpy as jnp  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.extend import mlir  # noqa: E402

# What would make the host take part in a step.
_HOST = re.compile(r"= \S+ (infeed|outfeed|send|recv|custom-call[^\n]*host)\b")


def devices(target: str, number: int) -> list[jax.Device]:
    """H100s, or cores of a v5e that has four."""
    if target == "tpu":
        return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[:number]
    card = Path(__file__).with_name("h100_sxm.txtpb").read_text()
    topology = f"1x1x{number}"
    return topologies.get_topology_desc("", platform="cuda", target_config=card, topology=topology).devices


def exported(folder: Path, described: dict[str, Any], platform: str) -> jax.export.Exported:
    """The program as a function that JAX can call."""
    arguments, results = (
        [jax.ShapeDtypeStruct(tuple(shape), dtype) for dtype, shape in described[name]]
        for name in ("arguments", "results")
    )
    like = jax.jit(lambda *_: tuple(jnp.zeros(x.shape, x.dtype) for x in results), keep_unused=True)
    artifact = mlir.hlo_to_stablehlo((folder / "module").read_bytes())
    function = jax.export.export(like, platforms=[platform])(*arguments)
    return dataclasses.replace(function, mlir_module_serialized=artifact)


def main() -> None:
    target, folder = sys.argv[1], Path(sys.argv[2])
    jax.config.update("jax_enable_x64", True)
    described = json.loads((folder / "program.json").read_text())
    function = exported(folder, described, {"tpu": "tpu", "gpu": "cuda"}[target])
    mesh = jax.sharding.Mesh(devices(target, described["replicas"]), ("replicas",))
    everywhere = jax.sharding.PartitionSpec()
    place = jax.sharding.NamedSharding(mesh, everywhere)
    arguments = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place) for x in function.in_avals]
    each = jax.shard_map(function.call, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    lowered = (
        jax.jit(each, donate_argnums=tuple(map(int, described["replaced"])), keep_unused=True)
        .trace(*arguments)
        .lower(lowering_platforms=function.platforms)
    )
    start = time.monotonic()
    compiled = lowered.compile()
    seconds = time.monotonic() - start
    memory, costs, text = compiled.memory_analysis(), compiled.cost_analysis() or {}, compiled.as_text()
    print(
        json.dumps(
            {
                "seconds": round(seconds, 1),
                "arguments": memory.argument_size_in_bytes,
                "temporaries": memory.temp_size_in_bytes,
                "flops": costs.get("flops"),  # bodies of loops once; the GPU's compiler does not count
                "bytes": costs.get("bytes accessed"),
                "host": dict(Counter(_HOST.findall(text))),
                "exchanges": len(re.findall(r" all-reduce(-start)?\(", text)),
            }
        )
    )


if __name__ == "__main__":
    main()
