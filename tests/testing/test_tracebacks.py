"""What pytest shows of a failed check: the line of the test, and the message."""

import importlib
import pathlib
import pkgutil

import pytest

from jaxformer import testing


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (testing.assert_scaled_dot_product, lambda query, key, value: query),
        (testing.assert_causal, lambda query, key, value, is_causal: key),  # while it is traced
        (testing.assert_attention_contract, lambda query, key, value, **keywords: key),
    ],
)
def test_failure_shows_the_line_of_the_test_alone(check, broken):
    with pytest.raises(AssertionError) as caught:
        check(broken)
    shown = caught.traceback.filter(caught)
    assert [entry.path for entry in shown] == [pathlib.Path(__file__)]
    report = str(caught.getrepr())
    assert "likely cause" in report and "During handling" not in report


def test_every_module_of_checks_hides_its_frames():
    for info in pkgutil.iter_modules(testing.__path__):
        module = importlib.import_module(f"jaxformer.testing.{info.name}")
        assert module.__tracebackhide__ is True, info.name
