"""The parser of XLA's program text: computations, instructions, arrays and trip counts."""

import pytest

from jaxformer.hlo import Computation, Instruction, parse_hlo

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
    results = {name: [*inner.instructions][-1] for name, inner in entry.program.items()}
    assert results == {"fused": "sum", "condition": "lt", "main.1": "out"}
    assert [instruction.opcode for instruction in entry.instructions.values()] == [
        "parameter", "while", "while", "fusion",
    ]  # fmt: skip
    out, pair = entry.instructions["out"], entry.instructions["pair"]
    assert out.operand_text == "%p, %known"
    assert [called.name for called in out.called("calls")] == ["fused"]
    assert [called.name for called in pair.called("body")] == ["fused"]
    assert pair.op_name == "jit(step)/while (of 7)" and pair.array_bytes == [4, 60]


def test_trip_count_is_the_known_one_or_the_constant_of_the_condition():
    loops = parse_hlo(PROGRAM).instructions
    assert (loops["pair"].trip_count, loops["known"].trip_count) == (7, 11)


@pytest.mark.parametrize(
    ("result", "num_bytes"),
    [
        ("f32[3,5]{1,0:T(8,128)}", [60]),
        ("(bf16[17,300]{1,0:T(8,128)(2,1)}, s32[]{:T(128)S(6)})", [10200, 4]),
        ("pred[7]{0:T(512)(128)(4,1)}", [7]),
    ],
)
def test_arrays_have_the_bytes_of_their_elements(result, num_bytes):
    op = Instruction(Computation("main", {}), "a", result, "add", "", "")
    assert op.array_bytes == num_bytes
