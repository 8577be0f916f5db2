"""Memory traffic that the benchmarks of TPUs read from the text of compiled programs."""

import importlib
import pathlib

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "experiments/benchmarks"

ROW = 1024 * 4  # bytes of f32[8,128], one tile
ATTENTION = 'metadata={op_name="jit(step)/jvp(Decoder)/layers/attention/dot_general"}'


def traffic(entry, computations=""):
    """Traffic of a program whose entry has some instructions and two parameters of 8 rows."""
    lines = "\n".join(f"  {line}" for line in entry)
    program = f"""{computations}
ENTRY %main (p: f32[8,8,128], q: f32[8,8,128], i: s32[]) -> f32[] {{
  %p = f32[8,8,128]{{2,1,0:T(8,128)}} parameter(0)
  %q = f32[8,8,128]{{2,1,0:T(8,128)}} parameter(1)
  %i = s32[]{{:T(128)S(6)}} parameter(2)
{lines}
}}
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("tpu_traffic").traffic_of(program)


def whole(name, opcode, rest, space=""):
    """One instruction with a result of 8 rows."""
    return f"%{name} = f32[8,8,128]{{2,1,0:T(8,128){space}}} {opcode}({rest}"


def row(name, opcode, rest, space=""):
    """One instruction with a result of a row."""
    return f"%{name} = f32[1,8,128]{{2,1,0:T(8,128){space}}} {opcode}({rest}"


TYPES = {
    "p": "f32[8,8,128]{2,1,0:T(8,128)}", "h": "bf16[8,8,128]{2,1,0:T(8,128)(2,1)}",
    "n": "f32[1,8,128]{2,1,0:T(8,128)}", "i": "s32[]{:T(128)S(6)}",
}  # fmt: skip


def computation(name, parameters, *lines):
    """A computation that others call; its parameters have the types of their letters."""
    head = [f"%{p} = {TYPES[p]} parameter({index})" for index, p in enumerate(parameters)]
    body = "\n".join(f"  {line}" for line in [*head, *lines])
    return f"%{name} (arguments) -> result {{\n{body}\n}}\n"


def total(entry, computations=""):
    """Traffic in rows."""
    return sum(traffic(entry, computations).values()) / ROW


def test_operands_are_read_and_results_written():
    assert traffic([whole("a", "add", f"%p, %q), {ATTENTION}")]) == {"attention": 24 * ROW}


ON_CHIP = [whole("a", "negate", "%p)", "S(1)"), whole("b", "add", "%a, %a)", "S(1)")]
NEW = row("n", "parameter", "3)")  # the values of an update
PART = TYPES["n"].replace(")}", ")S(1)}")
SLICE = "slice={[2:3], [0:8], [0:128]}"


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ([whole("a", "bitcast", "%p)")], 0),
        (["%a = (f32[8,8,128], f32[8,8,128]) tuple(%p, %q)"], 0),
        ([whole("a", "get-tuple-element", "%pair), index=0")], 0),
        ([whole("a", "constant", "{...})")], 0),
        ([whole("a", "custom-call", '), custom_call_target="AllocateBuffer"')], 0),
        ([whole("a", "custom-call", '%p), custom_call_target="ConcatBitcast"')], 0),
        # A kernel reads its operands and writes its results once.
        ([whole("a", "custom-call", '%p, %q), custom_call_target="tpu_custom_call"')], 24),
        (ON_CHIP[:1], 8),
        (ON_CHIP, 8),
        ([*ON_CHIP, whole("c", "negate", "%b)")], 16),
        # Slices and updates count what they move.
        ([row("a", "dynamic-slice", "%p, %i, %i, %i)")], 2),
        ([row("a", "slice", f"%p), {SLICE}")], 2),
        ([row("a", "gather", "%p, %i)")], 2),
        ([NEW, whole("a", "dynamic-update-slice", "%p, %n, %i, %i, %i)")], 2),
        # A scatter adds: it reads what it updates, the new values, and writes.
        ([NEW, whole("a", "scatter", "%p, %i, %n)")], 3),
        # An asynchronous slice reads the slice.
        (
            [
                f"%s = (({TYPES['p']}), {PART}, s32[]{{:S(2)}}) slice-start(%p), {SLICE}",
                f"%d = {PART} slice-done(%s)",
            ],
            1,
        ),
    ],
)  # fmt: skip
def test_instructions_count_what_they_move_through_the_device_memory(lines, rows):
    assert total(lines) == rows


LOOP = "\n".join([
    computation(
        "body", "",
        "%x = f32[8,8,128]{2,1,0:T(8,128)} get-tuple-element(%arg), index=1",
        "%y = f32[8,8,128]{2,1,0:T(8,128)} negate(%x)",
        "ROOT %r = (s32[], f32[8,8,128]) tuple(%i, %y)",
    ),
    computation("large", "p", "ROOT " + whole("y", "add", "%p, %p)")),
    computation("condition", "", "%bound = s32[]{:T(128)} constant(5)"),
])  # fmt: skip


def test_loop_counts_once_per_iteration_and_a_conditional_its_largest_branch():
    loop = "%w = (s32[], f32[8,8,128]) while(%t), condition=%condition, body=%body"
    assert total([loop], LOOP) == 5 * 16
    branches = "branch_computations={%body, %large}"
    assert total([whole("c", "conditional", f"%i, %p, %q), {branches}")], LOOP) == 24
    pair = "true_computation=%large, false_computation=%body"
    assert total([whole("c", "conditional", f"%i, %p, %q), {pair}")], LOOP) == 24
    assert total([whole("c", "call", "%p), to_apply=%large")], LOOP) == 24


FUSED = "\n".join([
    computation(
        "inner", "pi",
        "%narrow = bf16[8,8,128]{2,1,0:T(8,128)(2,1)} convert(%p)",
        "ROOT %s = bf16[1,8,128]{2,1,0:T(8,128)(2,1)} dynamic-slice(%narrow, %i, %i, %i)",
    ),
    computation(
        "reads", "pi",
        "%s = bf16[1,8,128]{2,1,0:T(8,128)(2,1)} fusion(%p, %i), kind=kLoop, calls=%inner",
        "ROOT " + row("r", "convert", "%s)"),
    ),
    computation(
        "both", "pi",
        row("s", "dynamic-slice", "%p, %i, %i, %i)"), "ROOT " + whole("r", "add", "%p, %s)"),
    ),
    computation(
        "writes", "pin",
        whole("u", "dynamic-update-slice", "%p, %n, %i, %i, %i)"), whole("b", "bitcast", "%u)"),
        "ROOT %r = (f32[8,8,128], f32[1,8,128]) tuple(%b, %n)",
    ),
    computation(
        "copies", "hin",
        whole("wide", "convert", "%h)"),
        "ROOT " + whole("u", "dynamic-update-slice", "%wide, %n, %i, %i, %i)"),
    ),
    computation(
        "seen", "pin",
        whole("b", "bitcast", "%p)"),
        "ROOT " + whole("u", "dynamic-update-slice", "%b, %n, %i, %i, %i)"),
    ),
    computation("converts", "p", f"ROOT %c = {TYPES['h']} convert(%p)"),
    computation(
        "fills", "in",
        "%z = f32[]{:T(128)} constant(0)", whole("e", "broadcast", "%z), dimensions={}"),
        "ROOT " + whole("u", "dynamic-update-slice", "%e, %n, %i, %i, %i)"),
    ),
])  # fmt: skip


def test_fusion_reads_the_slices_of_its_parameters():
    assert total([row("f", "fusion", "%p, %i), kind=kLoop, calls=%reads")], FUSED) == 1 + 1
    narrow = "%f = bf16[8,8,128]{2,1,0:T(8,128)(2,1)} fusion(%p), kind=kLoop, calls=%converts"
    assert total([narrow], FUSED) == 8 + 4
    # All of what something else than a slice uses, too.
    assert total([whole("f", "fusion", "%p, %i), kind=kLoop, calls=%both")], FUSED) == 8 + 8


def test_fusion_that_updates_a_parameter_writes_the_update():
    new = row("n", "parameter", "3)")
    pair = "%f = (f32[8,8,128]{2,1,0:T(8,128)}, f32[1,8,128]{2,1,0:T(8,128)}) "
    line = pair + "fusion(%p, %i, %n), kind=kLoop, calls=%writes"
    assert total([new, line], FUSED) == 1 + (1 + 1)
    line = whole("f", "fusion", "%p, %i, %n), kind=kLoop, calls=%seen")
    assert total([new, line], FUSED) == 1 + 1
    # New memory is written as a whole.
    line = whole("f", "fusion", "%h, %i, %n), kind=kLoop, calls=%copies")
    half = "%h = bf16[8,8,128]{2,1,0:T(8,128)(2,1)} parameter(4)"
    assert total([new, half, line], FUSED) == 4 + 1 + 8
    assert total([new, whole("f", "fusion", "%i, %n), kind=kLoop, calls=%fills")], FUSED) == 1 + 8
