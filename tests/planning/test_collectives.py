"""Collectives read from the text of compiled programs."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxformer.hlo import parse_hlo
from jaxformer.planning import Collective
from jaxformer.planning.collectives import read_collectives

# As XLA writes a program for a TPU, cut to the lines that matter: one gather, in three places.
ASYNC = """HloModule jit_step
%start (param_0: bf16[1,64,512]) -> bf16[1,128,512] {
  %all-gather.1 = bf16[1,128,512]{2,1,0:T(8,128)(2,1)} all-gather(%param_0), channel_id=67, \
replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, dimensions={1}
}

%done (param_0: bf16[1,64,512]) -> bf16[1,128,512] {
  %all-gather.2 = bf16[1,128,512]{2,1,0:T(8,128)(2,1)} all-gather(%param_0), channel_id=67, \
replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, dimensions={1}
}

%body (arg: (s32[], f32[3])) -> (s32[], f32[3]) {
  %a = bf16[1,128,512]{2,1,0} fusion(%x), kind=kCustom, calls=%start
  %b = bf16[1,128,512]{2,1,0} fusion(%a), kind=kCustom, calls=%done
  %r = (f32[7]{0}, pred[5]{0}) all-reduce(%y, %z), channel_id=3, replica_groups={{0,1},{2,3}}, \
to_apply=%add
}

%condition (arg: (s32[], f32[3])) -> pred[] {
  %c = s32[]{:T(128)} constant(12)
  ROOT %lt = pred[] compare(%i, %c), direction=LT
}

ENTRY %main (p: f32[3]) -> f32[3] {
  %while.1 = (s32[], f32[3]) while(%tuple), condition=%condition, body=%body
  %s = (f32[4]{0}, f32[8]{0}) all-gather-start(%p), channel_id=9, replica_groups=[4,2]<=[8]
}
"""


# As XLA writes `shard_map`, whose collectives all have channel 1; and a reduce-scatter on a TPU.
SHARDED = """HloModule jit_step
%all-reduce-scatter.7 (input: f32[64]) -> f32[16] {
  %all-reduce.3 = f32[64]{0} all-reduce(%input), channel_id=5, replica_groups={{0,1,2,3}}, \
to_apply=%add
}

ENTRY %main (p: f32[3]) -> f32[3] {
  %k = f32[10]{0} collective-permute(%p), channel_id=1, \
source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  %v = f32[6]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  %c = f32[5]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3}}
  %s = f32[100]{0} all-reduce(%p), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%add
  %f = f32[16]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.7
}
"""


def test_collectives_that_share_a_channel_all_count():
    assert read_collectives(parse_hlo(SHARDED), 4) == [
        Collective("all-reduce", 2, 1, 400),
        Collective("collective-permute", 4, 3, 84),
        Collective("reduce-scatter", 4, 1, 64),
    ]


def test_collective_that_names_no_groups_is_one_of_all_devices():
    program = "ENTRY %main (p: f32[3]) -> f32[3] {\n  %s = f32[3]{0} all-reduce(%p), channel_id=1, "
    program = parse_hlo(program + "replica_groups={}, to_apply=%add\n}\n")
    assert read_collectives(program, 8) == [Collective("all-reduce", 8, 1, 12)]


def test_collectives_count_once_for_each_turn_of_a_loop():
    gather, reduce, start = (
        Collective("all-gather", 4, 12, 12 * 128 * 512 * 2),
        Collective("all-reduce", 2, 12, 12 * (7 * 4 + 5)),
        Collective("all-gather", 2, 1, 32),
    )
    assert read_collectives(parse_hlo(ASYNC), 8) == [gather, reduce, start]
    assert gather.traffic == gather.num_bytes * 3 / 4
    assert reduce.traffic == reduce.num_bytes


@pytest.mark.parametrize("turns", [1, 5])
def test_sums_in_a_compiled_scan_are_found(turns):
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))

    @jax.jit
    def program(x):
        def turn(x, _):
            # So that each turn needs the sum of the one before.
            return jax.lax.with_sharding_constraint(
                jnp.sin(x + x.sum()), NamedSharding(mesh, PartitionSpec("rows"))
            ), None

        return jax.lax.scan(turn, x, length=turns)[0]

    shape = jax.ShapeDtypeStruct(
        (16,), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("rows"))
    )
    text = program.lower(shape).compile().as_text()
    assert read_collectives(parse_hlo(text), 4) == [Collective("all-reduce", 4, turns, 4 * turns)]
