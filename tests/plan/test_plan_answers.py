"""Answers are shared by questions with the same content, and their number is bounded."""

from __future__ import annotations

from typing import Any

from kernloom.config.convert import convert
from kernloom.config.schema import Kernel
from kernloom.plan import answers as answers_module
from kernloom.plan.answers import Answers


def kernel(**changes: Any) -> Kernel:
    data = {
        "name": "k",
        "arguments": {},
        "sources": {},
        "tunables": {"tile": {"a": {"values": [1, 2], "off": 1}}},
        "constraints": ["a <= registers"],
        "model": "N / a",
        **changes,
    }
    return convert(Kernel, data, "kernel")


def test_only_what_the_kernel_mentions_makes_another_question() -> None:
    answers = Answers()
    known = {"registers": 16, "N": 64, "cores": 2}
    first = answers.question(kernel(), {}, known)
    assert answers.question(kernel(), {}, {**known, "cores": 8}) == first
    assert answers.question(kernel(about="the same"), {}, known) == first
    for other in (
        answers.question(kernel(), {}, {**known, "N": 65}),
        answers.question(kernel(model="a / N"), {}, known),
        answers.question(kernel(constraints=[]), {}, known),
        answers.question(kernel(), {"a": 1}, known),
    ):
        assert other != first
    one, true = (answers.question(kernel(), {"a": value}, known) for value in (1, True))
    assert one != true


def test_no_more_answers_are_kept_than_the_limit() -> None:
    answers = Answers()
    wanted = kernel()
    for number in range(answers_module.LIMIT * 2 + 1):
        question = answers.question(wanted, {}, {"N": number})
        answers.keep_chosen(question, {"a": 1})
        answers.keep_valid(question)
        assert answers.chosen(question) == {"a": 1}
        assert answers.is_valid(question)
    assert len(answers._chosen) <= answers_module.LIMIT
    assert len(answers._valid) <= answers_module.LIMIT
