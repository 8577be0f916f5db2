import dataclasses

from jaxformer.text import Table


@dataclasses.dataclass(frozen=True)
class Aligned(Table):
    """A kind of table as a user may write it, with three columns."""

    unit = "sentences"
    layout = "words, tab, tags, tab, domain"
    inputs = ("words",)

    words: tuple[str, ...]
    tags: tuple[str, ...]
    domains: tuple[str, ...]


def test_own_kind_of_table_is_read_by_its_columns(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("A dog\tDET N\tnews\nA dog\tDET N\n\nHe sleeps\t PRON V \tchat\nHe\t\tchat\n")
    table, counts = Aligned.read([str(path)])
    words, tags, domains = ("A dog", "He sleeps"), ("DET N", "PRON V"), ("news", "chat")
    assert table == Aligned(words, tags, domains, lines=("1", "4"))
    assert str(counts) == "5 sentences read, 2 kept; 1 empty (line 5), 2 misaligned (lines 2, 3)"
    assert table.take([1, 0]) == Aligned(words[::-1], tags[::-1], domains[::-1], lines=("4", "1"))
