"""The parser of XLA's program text: computations, instructions, arrays and trip counts."""

import pytest

from jaxformer.hlo import Array, parse_hlo, read_arrays

PROGRAM = """HloModule jit_step, is_scheduled=true
%fused (param_0: f32[3,5], param_1: s32[]) -> f32[3,5] {
  %param_1 = s32[]{:T(128)S(6)} parameter(1)
  %param_0 = f32[3,5]{1,0:T(8,128)} parameter(0)
  ROOT %sum = f32[3,5]{1,0:T(8,128)} add(%param_0, %param_0)
}

%condition (arg: (s32[], f32[3,5])) -> pred[] {
  %bound = s32[]{:T(128)} constant(7)
  ROOT %lt = pred[]{:T(512)} compare(%i, %bound), direction=LT
}

ENTRY %main.1 (p: f32[3,5]) -> f32[3,5] {
  %p = f32[3,5]{1,0:T(8,128)} parameter(0)
  %pair = (s32[]{:T(128)}, /*index=1*/f32[3,5]{1,0:T(8,128)S(1)}) while(%start), \
condition=%condition, body=%fused, metadata={op_name="jit(step)/while (of 7)"}
  %known = s32[] while(%pair), condition=%condition, body=%fused, \
backend_config={"known_trip_count":{"n":"11"}}
  ROOT %out = f32[3,5]{1,0:T(8,128)} fusion(%p, %known), kind=kLoop, calls=%fused
}
"""


def test_program_is_read_into_computations():
    entry = parse_hlo(PROGRAM)
    assert entry.name == "main.1"
    assert {name: computation.root.name for name, computation in entry.program.items()} == {
        "fused": "sum", "condition": "lt", "main.1": "out",
    }  # fmt: skip
    assert [instruction.opcode for instruction in entry.instructions.values()] == [
        "parameter", "while", "while", "fusion",
    ]  # fmt: skip
    out, pair = entry.instructions["out"], entry.instructions["pair"]
    assert [operand.name for operand in out.operands] == ["p", "known"]
    assert [called.name for called in out.called("calls")] == ["fused"]
    assert [called.name for called in pair.called("body")] == ["fused"]
    assert pair.op_name == "jit(step)/while (of 7)" and pair.operands == [None]
    assert [array.space for array in pair.arrays] == [0, 1]
    fused = entry.program["fused"].instructions
    assert [user.name for user in fused["param_0"].users] == ["sum"] and not fused["param_1"].users


def test_trip_count_is_the_known_one_or_the_constant_of_the_condition():
    loops = parse_hlo(PROGRAM).instructions
    assert (loops["pair"].trip_count, loops["known"].trip_count) == (7, 11)


@pytest.mark.parametrize(
    "text, size, num_bytes, space",
    [
        ("f32[3,5]", 15, 60, 0),
        ("f32[3,5]{1,0:T(8,128)}", 15, 8 * 128 * 4, 0),  # padded to one tile
        ("f32[3,5]{0,1:T(4,128)S(1)}", 15, 8 * 128 * 4, 1),  # five rows of three in tiles of four
        ("bf16[17,300]{1,0:T(8,128)(2,1)}", 5100, 24 * 384 * 2, 0),
        ("pred[7]{0:T(512)(128)(4,1)}", 7, 512, 0),
        ("s32[]{:T(128)S(6)}", 1, 512, 6),
    ],
)
def test_array_has_the_bytes_of_its_tiles(text, size, num_bytes, space):
    (array,) = read_arrays(text)
    assert array == Array(size, array.width, num_bytes, space)
    assert array.width == {"f": 4, "b": 2, "p": 1, "s": 4}[text[0]]
