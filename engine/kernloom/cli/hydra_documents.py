"""Output formats of a sweep that Hydra launches: each job leaves a document, all are printed at the
end."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from kernloom.base.errors import UsageError, nearest
from kernloom.cli.invocation import PLAIN_OUTPUTS, TABLE
from kernloom.report.documents import build_document
from kernloom.run.objectives import files_of_jobs

OUTPUT = "output"
"""File with the output format of the jobs, in the sweep's folder."""
DOCUMENTS = "documents"
"""Folder of what the jobs print in a format for programs."""


def check_output_of_jobs(output: str) -> None:
    if output not in PLAIN_OUTPUTS:
        raise UsageError(
            f"jobs that Hydra launches have no output={output}",
            hint=f"{nearest(output, PLAIN_OUTPUTS)} `kernloom results output={output}` shows what "
            "they have stored.",
        )


def document_file(folder: Path, number: str) -> Path | None:
    """The file for the document of a job; None if it prints a table for people."""
    if (folder / OUTPUT).read_text(encoding="utf-8") == TABLE:
        return None
    (folder / DOCUMENTS).mkdir(exist_ok=True)
    return folder / DOCUMENTS / number


def print_documents(folder: Path, output: str, out: TextIO) -> None:
    """Print the documents of all jobs, as one or as lines."""
    files = sorted(files_of_jobs(folder / DOCUMENTS), key=lambda path: int(path.name))
    texts = [path.read_text(encoding="utf-8") for path in files]
    if output == "jsonl":
        out.writelines(texts)
    elif output == "json":
        documents = []
        for text in texts:
            with suppress(ValueError):  # of a job that was killed
                documents.append(json.loads(text))
        print(json.dumps(_joined(documents)), file=out)


def _joined(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """One document of a sweep; `error` is the first of those that jobs report."""
    builds = [build_document(document.get("build", {})) for document in documents]
    names = build_document({})
    joined: dict[str, Any] = {
        "trials": [trial for document in documents for trial in document.get("trials", [])],
        "build": {name: sum(build[name] for build in builds) for name in names},
    }
    errors = [document["error"] for document in documents if "error" in document]
    return {**joined, "error": errors[0]} if errors else joined
