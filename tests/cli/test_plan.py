import dataclasses

import pytest

from jaxformer import planning
from jaxformer.cli import main
from jaxformer.cli.terminal import readable_seconds
from jaxformer.planning.compiler import CompiledStep
from tests.cli.commands import one_line, output, write_config


@pytest.fixture(scope="module")
def plan_config(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("plan"))


@pytest.mark.essential
def test_plan_reads_no_data_and_takes_flags_of_both(plan_config, capsys):
    (plan_config.parent / "text.txt").unlink(missing_ok=True)
    printed = one_line(capsys, "plan", plan_config, "--accelerator", "H100")
    assert "character tokenizer" in printed and "--model.vocab-size" in printed
    words = ["--model.vocab-size", 31, "--accelerator", "H100", "--mesh.fsdp", 2]
    printed = output(capsys, "plan", plan_config, *words, "--devices", 8).out
    assert "8 x H100; mesh data 4, fsdp 2" in printed
    assert "8 rows of 32 tokens" in printed and ": fits" in printed
    assert "traffic      at least " in printed and "(through the memory of each device)" in printed
    assert "; memory limits the step at the peak" in " ".join(printed.split())
    assert not (plan_config.parent / "run").exists()


def test_plan_that_does_not_fit_has_status_1_and_says_what_does(plan_config, capsys):
    rows = 2**15 - 1  # odd, so that micro-batches are no help
    words = ["--model.vocab-size", 31, "--accelerator", "A100", "--training.batch-size", rows]
    words += ["--model.num-layers", 12, "--model.d-model", 64]
    with pytest.raises(SystemExit) as stopped:
        main(["plan", str(plan_config), *map(str, words)])
    printed = capsys.readouterr().out
    assert stopped.value.code == 1
    assert "does not fit" in printed
    assert printed.partition("\nfits ")[2].split()[:2] == ["--model.remat", "dots:"]


@pytest.mark.essential
def test_plan_of_a_compiled_step_has_what_the_compiler_says(plan_config, capsys, monkeypatch):
    make = planning.make_plan

    def compile_as(step):
        monkeypatch.setattr(
            planning, "make_plan", lambda *args, **options: dataclasses.replace(
                make(*args, **options), compiled=step
            ),
        )  # fmt: skip

    words = ["plan", plan_config, "--model.vocab-size", 31, "--accelerator", "H100"]
    attention = ("splash, a fused kernel",)
    compile_as(CompiledStep(2.6, 2**22, 2**20, 2**21, 2**10, attention=attention))
    printed = " ".join(output(capsys, *words).out.split())
    assert "attention splash, a fused kernel compiled" in printed
    assert "compiled arguments 4 MiB, results 1 MiB, temporaries 2 MiB, program 1 KiB" in printed
    assert "; in 3 s memory 7.001 MiB of " in printed
    compile_as(CompiledStep(2.6, failure="Ran out of memory"))
    monkeypatch.setattr(planning, "setting_that_fits", lambda plan: None)
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    printed = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 1
    assert "memory does not fit; the compiler reports: Ran out of memory" in printed
    assert "fits nothing, even with more remat, micro-batches or fsdp; use more devices" in printed


def test_mistakes_of_a_plan_are_one_line(plan_config, capsys):
    plan = ["plan", plan_config, "--model.vocab-size", 31]
    assert "H100" in one_line(capsys, *plan, "--accelerator", "H10")
    assert "--accelerator" in one_line(capsys, *plan)
    assert "utilization" in one_line(capsys, *plan, "--accelerator", "H100", "--utilization", 0)
    few = one_line(capsys, *plan, "--accelerator", "H100", "--devices", 0)
    assert "--devices must be positive, got 0" in few
    assert "--modl.remat" in one_line(capsys, *plan, "--accelerator", "H100", "--modl.remat", "x")
    assert "3" in one_line(capsys, *plan, "--accelerator", "H100", "--devices", 3)


def test_times_have_a_unit_of_which_there_are_two():
    times = {86_999: "24.2 hours", 200_000: "2.31 days", 61: "61 s", 1.5: "1.5 s", 0.145: "145 ms"}
    for seconds, text in times.items():
        assert readable_seconds(seconds) == text
