"""What stands beside the package, and must agree with it."""

import pathlib
import re
import tomllib

import jaxformer
from jaxformer.config import files

PYPROJECT = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))


def test_citation_has_the_version_and_licence_of_the_package():
    citation = pathlib.Path("CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^(\w+): (.+)$", citation, flags=re.MULTILINE))
    assert fields["version"] == jaxformer.__version__
    assert fields["license"] == PYPROJECT["project"]["license"]


def test_source_distribution_includes_what_exists():
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [path for path in included if not pathlib.Path(path.lstrip("/")).exists()] == []


def test_wheel_has_the_ready_configs_where_they_are_looked_for():
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    package = pathlib.Path(jaxformer.__file__).parent
    (source,) = (source for source, to in included.items() if to == f"{package.name}/configs")
    assert list(pathlib.Path(source).glob("*.toml"))
    assert files._FOLDERS[0] == package / "configs"
