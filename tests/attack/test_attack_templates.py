"""Templates that try to exhaust the machine."""

from __future__ import annotations

import resource
from pathlib import Path

from attacks import Attack
from kernloom.base.errors import TemplateError
from kernloom.plan.template_worker import CPU_S, MEMORY_MIB
from kernloom.plan.templates import Templates

LONG = "{% for i in range(99999) %}"
DOUBLED = "{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(60) %}"
BOMBS = {
    "range": "{% for i in range(10**12) %}{% endfor %}",
    "nested loops": f"{LONG}{LONG}{LONG}{'{% endfor %}' * 3}",
    "nested output": f"{LONG}{LONG}x{'{% endfor %}' * 2}",
    "text times": "{{ 'a' * 10**10 }}",
    "text times, smaller": "{{ ('a' * 10**8) ~ ('b' * 10**8) ~ ('c' * 10**8) ~ ('d' * 10**8) }}",
    "list times": "{{ [0] * 10**10 }}",
    "power": "{{ 9**(9**9) }}",
    "power, as text": "{{ (7**(10**6)) | string }}",
    "power, divided": "{{ (10**(10**7)) // 3 % 7 }}",
    "shift by power": "{{ 2**(2**40) }}",
    "doubled by ~": DOUBLED + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubled by +": DOUBLED + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubled by join": DOUBLED + "{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
    "doubled by replace": DOUBLED + "{% set ns.x = ns.x | replace('a', 'aa') %}{% endfor %}",
    "doubled by format": DOUBLED + "{% set ns.x = '%s%s' | format(ns.x, ns.x) %}{% endfor %}",
    "doubled by a block": DOUBLED + "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
    "center": "{{ 'a' | center(10**10) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "zfill": "{{ 'a'.zfill(10**10) }}",
    "expandtabs": "{{ '\\t'.expandtabs(10**10) }}",
    "percent": "{{ '%99999999999d' % 1 }}",
    "percent, less": "{{ '%999999999d' % 1 }}",
    "format": "{{ '{:9999999999}'.format(1) }}",
    "indent": "{{ ('a\\n' * 10**6) | indent(10**6) }}",
    "wordwrap": "{{ ('a ' * 10**7) | wordwrap(1) | wordwrap(1) | wordwrap(1) }}",
    "batch": "{{ [1] | batch(10**10, 0) | list }}",
    "slice": "{{ [1] | slice(10**10, 0) | list }}",
    "lipsum": "{{ lipsum(n=10**7) }}",
    "to_bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "join of ranges": "{{ range(99999) | map('string') | map('center', 99999) | join }}",
    "sum": f"{LONG}{{{{ range(99999) | sum }}}}{{% endfor %}}",
    "sort": f"{LONG}{{{{ range(99999) | reverse | sort | first }}}}{{% endfor %}}",
    "macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "macros that double": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(60) }}",
    "call blocks": "{% macro m() %}{{ caller() }}{% call m() %}x{% endcall %}{% endmacro %}"
    "{% call m() %}x{% endcall %}",
    "recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "recursive loops": "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    "self include": "{% include 'bomb.j2' %}",
    "self import": "{% import 'bomb.j2' as other %}",
    "self extends": "{% extends 'bomb.j2' %}",
    "include that doubles": "{% include 'bomb.j2' %}{% include 'bomb.j2' %}",
    "deep parentheses": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "deep lists": "{{ " + "[" * 20000 + "]" * 20000 + " }}",
    "deep ifs": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "long sum": "{{ " + "1+" * 100000 + "1 }}",
    "long not": "{{ " + "not " * 100000 + "1 }}",
    "long filters": "{{ 1" + "|abs" * 20000 + " }}",
    "long attributes": "{{ arch" + ".a" * 20000 + " }}",
    "folded constant": "{{ 'a' * 5000000000 }}",
    "folded power": "{{ 3**30000000 }}",
    "folded filter": "{{ 'a' | center(5000000000) }}",
    "urlize": "{{ ('http://' * 10**5) | urlize }}",
    "striptags": "{{ ('<' * 10**6) | striptags }}",
    "int of text": "{{ ('9' * 10**6) | int }}",
    "list that grows": "{% set ns = namespace(x=[]) %}"
    + LONG
    + "{% set ns.x = ns.x + range(99999) | list %}{% endfor %}",
    "tojson": "{{ ([range(99999) | list] * 10**4) | tojson }}",
    "pprint": "{{ ([range(99999) | list] * 10**4) | pprint }}",
    "unique": f"{LONG}{{{{ range(99999) | unique | list | length }}}}{{% endfor %}}",
    "groupby": f"{LONG}{{{{ ['ab'] * 99999 | int }}}}{{% endfor %}}",
    "escape": "{{ ('<' * 10**8) | escape | escape }}",
    "comparing": f"{{% set a = [0] * 10**7 %}}{LONG}{{{{ a == a[:] }}}}{{% endfor %}}",
}
KIB_PER_MIB = 1024


def test_attack_template_bombs(attack: Attack, tmp_path: Path) -> None:
    """Each ends in one error that names the file, and in bounded time and memory."""
    file = tmp_path / "bomb.j2"
    for name, text in attack.cases(BOMBS.items(), small=4):
        file.write_text(text, encoding="utf-8")
        templates = Templates([tmp_path], lambda wanted: _found(tmp_path / wanted))
        before = _children_cpu_s()
        try:
            made, _ = templates.render(file.name, {"arch": {}}, key="key")
        except TemplateError as error:
            if str(file) not in str(error) or len(str(error)) > 3000:
                attack.failed(f"{name}: {str(error)[:200]}")
        else:
            # Small enough to be no bomb at all on this Jinja2.
            if len(made) > 1 << 20:
                attack.failed(f"{name}: {len(made)} characters")
        del templates
        if _children_cpu_s() - before > CPU_S + 4:
            attack.failed(f"{name}: took {_children_cpu_s() - before:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / KIB_PER_MIB
    if peak > MEMORY_MIB + 100:
        attack.failed(f"a worker took {peak:.0f} MiB")
    attack.check()


def _found(path: Path) -> tuple[Path, str] | None:
    return (path, path.read_text(encoding="utf-8")) if path.is_file() else None


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
