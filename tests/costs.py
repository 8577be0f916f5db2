"""What tests cost in seconds of a core, and which of them the default tier has no room for."""

import collections
import pathlib
import resource

import pytest

COSTS = pathlib.Path(__file__).with_name("costs.tsv")
ROOM = 0.25  # seconds of a core that one test function may take in the default tier
_RECORDED = 0.2  # seconds of a core; functions that take less are not recorded
_HEADER = f"""\
# Seconds of a core, number of cases, test function. A function may take {ROOM:g} seconds in the
# default tier: of a dearer one as many cases run as fit, evenly spread; the others are thorough.
# One that is marked "essential" runs at least one case. Shared fixtures are not counted.
# Measured with empty caches, on a 2-core AMD EPYC (family 25, model 1), by
#   python -m pytest -n 2 --dist loadfile -m 'not slow and not parity' --record-costs
"""


def function_of(nodeid):
    """Name of a test function, without the case."""
    return nodeid.partition("[")[0]


def read_costs():
    """(seconds, cases) of the recorded test functions."""
    lines = COSTS.read_text(encoding="utf-8").splitlines()
    fields = (line.split("\t") for line in lines if not line.startswith("#"))
    return {name: (float(seconds), int(cases)) for seconds, cases, name in fields}


def items_beyond(items, room, *, every_function=False):
    """The cases for which functions have no room; with `every_function`, each keeps one."""
    costs, cases = read_costs(), collections.defaultdict(list)
    for item in items:
        cases[function_of(item.nodeid)].append(item)
    for name, of_function in cases.items():
        seconds, measured = costs.get(name, (0.0, 1))
        fitting = int(room * measured / seconds) if seconds else len(of_function)
        if every_function or of_function[0].get_closest_marker("essential"):
            fitting = max(fitting, 1)
        fitting = min(fitting, len(of_function))
        running = {i * len(of_function) // fitting for i in range(fitting)}
        yield from (item for i, item in enumerate(of_function) if i not in running)


def _core_seconds():
    """Time of this process and of its finished children, on all cores."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class CostRecorder:
    """Plugin of --record-costs: workers measure phases of tests, the first process writes them."""

    def __init__(self):
        self._since = _core_seconds()
        self._shared = [0.0]  # of fixtures with a wider scope, by depth; the last is the current
        self._seconds = collections.Counter()
        self._cases = collections.defaultdict(set)

    def pytest_runtest_logstart(self):
        """Leaves out what was spent between two tests, as on collecting."""
        self._since = _core_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        """Measures a shared fixture, without those that it asks for."""
        start = _core_seconds()
        self._shared.append(0.0)
        try:
            return (yield)
        finally:
            inner = self._shared.pop()
            is_shared = fixturedef.scope != "function"
            self._shared[-1] += _core_seconds() - start if is_shared else inner

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Adds the cost of a phase to its report, which reaches the first process."""
        report = yield
        now = _core_seconds()
        report.core_seconds = now - self._since - self._shared[-1]
        self._since, self._shared[-1] = now, 0.0
        return report

    def pytest_runtest_logreport(self, report):
        """Counts the phases of a function's cases."""
        self._seconds[function_of(report.nodeid)] += report.core_seconds
        self._cases[function_of(report.nodeid)].add(report.nodeid)

    def pytest_sessionfinish(self, session):
        """Writes the file, in the first process."""
        if hasattr(session.config, "workerinput"):
            return
        lines = [
            f"{seconds:.1f}\t{len(self._cases[name])}\t{name}\n"
            for name, seconds in sorted(self._seconds.items())
            if seconds >= _RECORDED
        ]
        COSTS.write_text(_HEADER + "".join(lines), encoding="utf-8")
