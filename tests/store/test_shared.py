"""A document's text is its own, whatever was written before it, and it is read back from that."""

from __future__ import annotations

import json

import pytest

from kernloom.store.shared import Reader, Writer

LARGE = {f"stage{number}": {"use": "x" * 60, "in": number} for number in range(12)}
PLAIN = {
    "text": "é\n",
    "number": 1,
    "truth": True,
    "half": 0.5,
    "none": None,
    "list": [1, {"a": 2}],
}
DOCUMENTS = [
    {"workload": {"sizes": {"N": 1}, "golden": PLAIN}, "pipeline": {"stages": LARGE}, "seed": 1},
    {"workload": {"sizes": {"N": 2}, "golden": PLAIN}, "pipeline": {"stages": LARGE}, "seed": 1},
    {"pipeline": {"stages": LARGE}, "workload": {"sizes": {"N": 1}, "golden": PLAIN}, "seed": True},
    {"seed": 1.0, "workload": LARGE, "pipeline": {"workload": PLAIN}},
    {"seed": LARGE, "stages": LARGE},
    {"$": "no place"},
    {"$": LARGE},
    {"$": 1, "seed": 1},
    {"seed": {"$": {"$$": PLAIN}}},
    {1: "one"},
    {True: "one"},
    {"1": "one"},
    {},
]


@pytest.mark.parametrize("order", [1, -1])
def test_a_text_does_not_depend_on_what_was_written_before(order):
    writer = Writer()
    for document in [*DOCUMENTS[::order], *DOCUMENTS]:
        assert writer.document(document) == Writer().document(document)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_is_read_back_from_its_text_and_its_sections(document):
    written = Writer().document(document)
    sections = dict(written.sections)
    reader = Reader()
    reader.need([written.text], lambda names: {name: sections[name] for name in names})
    assert reader.document(written.text) == json.loads(json.dumps(document))
