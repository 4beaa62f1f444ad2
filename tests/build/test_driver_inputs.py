"""A driver's compiler reads the files of a package only: whatever could reach others is refused."""

from __future__ import annotations

import pytest

from kernloom.base.errors import ConfigError
from kernloom.build.driver_inputs import check_options, check_sources

KEY = "toolchain.extra_flags"
FILES = {
    "kernel.cl": '#include "parts/a.h"\n#include "../common/c.h"\n#include <parts/a.h>\n',
    "own/parts/a.h": '#include "b.h" // beside it\n  #  include /* from the top */ "top.h"\n',
    "own/parts/b.h": "",
    "own/top.h": "",
    "common/c.h": "",
}


def check(text: str, folder: str = "own") -> None:
    check_sources({**FILES, "kernel.cl": text}, "kernel.cl", folder, key="kernel.file")


@pytest.mark.parametrize(
    "options",
    [
        ("-cl-std=CL1.2", "-cl-fast-relaxed-math", "-w", "-Werror", "-g", "-O2"),
        ("-DPATH=/not/read", "-D", "NAME=a/b", "-DA=1 -UB", "-mcpu=gfx906", "-ffp-contract=fast"),
    ],
)
def test_options_that_read_nothing_are_taken(options: tuple[str, ...]) -> None:
    check_options({KEY: options})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("-I/abs/dir",), "-I/abs/dir"),
        (("-I", "dir"), "-I"),
        (("-include", "x.h"), "-include"),
        (("-imacros", "x.h"), "-imacros"),
        (("-isystem", "/x"), "-isystem"),
        (("-DA=1 -I/abs/dir",), "-I/abs/dir"),
        (("-D", "A=1", "-I/abs"), "-I/abs"),
        (("-fplugin=x.so",), "-fplugin=x.so"),
        (("-fprofile-use=/x",), "-fprofile-use=/x"),
        (("-Wp,-include,x.h",), "-Wp,-include,x.h"),
        (("-mllvm", "-load=x.so"), "-mllvm"),
        (("-s", "/x.cl"), "-s"),
        (("@file",), "@file"),
        (("x.cl",), "x.cl"),
    ],
)
def test_options_that_may_read_files_are_refused_by_name(
    options: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_options({"toolchain.flags": ["-cl-std=CL1.2"], KEY: options})
    assert error.value.key == KEY
    assert f"'{named}' is refused" in error.value.message
    assert "-cl-" in error.value.hint


def test_files_of_the_package_may_be_included() -> None:
    check_sources(FILES, "kernel.cl", "own", key="kernel.file")
    check('#include "top.h"\nconstant char *s = "#include </x.h> /* ";\n// #include </x.h>\n')
    check('/* "\n#include </x.h>\n*/ int include;\n#define EMBED 1\n')


OUTSIDE = {
    "an absolute path": "#include </abs/x.h>\n",
    "a quoted absolute path": '#include "/abs/x.h"\n',
    "a path that leaves the folder": '#include "../../x.h"\n',
    "a file that is not there": '#include "none.h"\n',
    "a header of the system": "#include <math.h>\n",
    "a macro": '#define H "top.h"\n#include H\n',
    "the next file": '#include_next "top.h"\n',
    "data": '#embed "/abs/x"\n',
    "a question": '#if __has_include("/abs/x.h")\n#endif\n',
    "a digraph": "%:include </abs/x.h>\n",
    "a trigraph": "??=include </abs/x.h>\n",
    "a spliced line": "#inc\\\nlude </abs/x.h>\n",
    "a splice that is none without trigraphs": "// why??/\n#include </abs/x.h>\n",
    "the end of a comment": "/*\n// */ #include </abs/x.h>\n",
    "a comment in between": "#/**/include/**/</abs/x.h>\n",
    "a comment of two lines": "#/*\n*/include </abs/x.h>\n",
    "a string that only looks like a comment": 'constant char *s = "/*";\n#include </abs/x.h>\n',
    "a string without end": "#define X don't /*\n#include </abs/x.h>\n",
    "a raw string": 'constant char *s = R"(\n/*\n)";\n#include </abs/x.h>\n',
    "assembly": 'void f() { __asm__(".incbin \\"/x\\""); }\n',
}


@pytest.mark.parametrize("how", OUTSIDE)
def test_a_source_that_reaches_other_files_is_refused(how: str) -> None:
    with pytest.raises(ConfigError, match="changes would go unnoticed"):
        check(OUTSIDE[how])
    with pytest.raises(ConfigError, match="changes would go unnoticed"):
        check_sources({**FILES, "own/parts/b.h": OUTSIDE[how]}, "kernel.cl", "own", key="k")


def test_without_a_folder_nothing_is_included() -> None:
    with pytest.raises(ConfigError, match=r'kernel.cl reaches a file .*, "top.h"') as error:
        check_sources({"kernel.cl": '#include "top.h"\n'}, "kernel.cl", "", key="kernel.template")
    assert error.value.key == "kernel.template"
