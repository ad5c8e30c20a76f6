"""The scripts must find what they are there to find: each test plants one fault."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent.parent / "tools"


def run_check(name, files):
    """(exit code, output) of tools/<name>.py on a tree that holds `files`."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            (Path(root) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(root) / path).write_text(text)
        run = subprocess.run([sys.executable, TOOLS / f"{name}.py", root],
                             capture_output=True, text=True, check=False)
        return run.returncode, run.stdout


class Includes(unittest.TestCase):
    TREE = {
        "include/nvfp4/a.h": "#include <vector>\n",
        "include/nvfp4/b.h": '#include "nvfp4/a.h"\n',
        "src/core/c.h": '#include <fmt/format.h>\n#include "nvfp4/b.h"\n',
        "src/backends/backend.h": '#include "core/c.h"\n',
        "src/backends/cpu/k.cc": '#include "hwy/highway.h"\n#include "backends/backend.h"\n',
        "src/backends/reference/r.h": '#include "backends/backend.h"\n',
        "src/backends/registry.cc": '#include "backends/reference/r.h"\n',
        "src/checkpoint/plan/p.h": '#include "core/c.h"\n',
        "src/checkpoint/run/r.cc": '#include "checkpoint/plan/p.h"\n',
        "cli/main.cc": '#include "nvfp4/a.h"\n',
    }

    def expect(self, extra, problem):
        code, output = run_check("check_includes", {**self.TREE, **extra})
        self.assertIn(problem, output)
        self.assertEqual(code, 1)

    def test_accepts_includes_that_point_up(self):
        self.assertEqual(run_check("check_includes", self.TREE)[0], 0)

    def test_finds_an_include_that_points_down(self):
        self.expect({"src/core/bad.h": '\n#include "backends/backend.h"\n'},
                    "src/core/bad.h:2: src/backends/backend.h is further down")

    def test_finds_a_folder_that_includes_a_later_one(self):
        self.expect({"src/checkpoint/io/bad.cc": '#include "checkpoint/plan/p.h"\n'},
                    "src/checkpoint/plan/p.h is further down")
        self.expect({"src/checkpoint/bad.cc": ""}, "in no layer")

    def test_finds_a_step_that_includes_a_later_one(self):
        for room, later in (("source", "plan"), ("verify", "plan"), ("plan", "output"), ("output", "write"),
                            ("write", "choose"), ("choose", "run")):
            self.expect({f"src/checkpoint/{later}/l.h": "",
                         f"src/checkpoint/{room}/bad.cc": f'#include "checkpoint/{later}/l.h"\n'},
                        f"src/checkpoint/{later}/l.h is further down")

    def test_finds_one_backend_including_another(self):
        self.expect({"src/backends/cpu/bad.cc": '#include "backends/reference/r.h"\n'},
                    "belongs to another backend")

    def test_finds_a_public_header_that_needs_a_library(self):
        self.expect({"include/nvfp4/bad.h": "#include <fmt/format.h>\n"}, "only nvfp4/ and")

    def test_finds_kernels_that_know_checkpoints(self):
        self.expect({"include/nvfp4/checkpoint/c.h": "", "src/ops/bad.cc": '#include "nvfp4/checkpoint/c.h"\n'},
                    "include/nvfp4/checkpoint/c.h is further down")
        self.expect({"src/ops/bad.cc": "#include <nlohmann/json.hpp>\n"}, "may not include nlohmann/json.hpp")

    def test_finds_a_private_include_in_a_public_header(self):
        self.expect({"include/nvfp4/bad.h": '#include "core/c.h"\n'}, "may not include src/core/c.h")

    def test_finds_an_include_of_nothing(self):
        self.expect({"cli/bad.cc": '#include "no_such.h"\n'}, "not a file of this project")

    def test_finds_a_folder_in_no_layer(self):
        self.expect({"src/other/x.h": ""}, "in no layer")


class Style(unittest.TestCase):
    def expect(self, files, problem):
        code, output = run_check("check_style", files)
        self.assertIn(problem, output)
        self.assertEqual(code, 1)

    def test_accepts_a_tidy_file(self):
        self.assertEqual(run_check("check_style", {"src/a.cc": "int a = 1;\n"})[0], 0)

    def test_finds_a_folder_with_too_many_files(self):
        self.expect({f"src/checkpoint/io/f{i}.h": "" for i in range(26)}, "26 files, at most 25")

    def test_finds_a_file_that_is_too_long(self):
        self.expect({"src/a.cc": "\n" * 501}, "src/a.cc: 501 lines")

    def test_finds_a_page_that_names_no_file(self):
        files = {"src/a/b.cc": "int a = 1;\n", "docs/architecture.md": "`a/b.cc` and `src/a/b.cc`\n"}
        self.assertEqual(run_check("check_style", files)[0], 0)
        self.expect(files | {"CONTRIBUTING.md": "`a/gone.cc`\n"}, "CONTRIBUTING.md: names a/gone.cc")

    def test_finds_unfinished_work(self):
        self.expect({"tools/a.sh": "true\n# FIX" + "ME later\n"}, "tools/a.sh:2:")

    def test_finds_headers_of_one_system_outside_their_folder(self):
        for header in ("unistd.h", "sys/mman.h", "csignal", "windows.h"):
            self.expect({"src/core/a.cc": f"#include <{header}>\n"}, "only src/platform may include")
        self.expect({"cli/a.cc": "#include <fcntl.h>\n"}, "only src/platform may include")
        self.assertEqual(run_check("check_style", {"src/platform/linux/a.cc": "#include <fcntl.h>\n"})[0], 0)

    def test_finds_a_comment_with_a_wrong_beginning(self):
        for word in ("Of", "Those", "Which", "What", "Whether", "Where", "That", "Far", "Beside", "As", "How",
                     "Else", "For all"):
            self.expect({"src/a.h": f"int a;\n\n/// {word} things.\nint b;\n"},
                        f"src/a.h:3: a comment begins with '{word}'; "
                        "begin with a verb (Returns …) or a noun (The …)")
        self.expect({"src/a.h": "int a;  // the sum\n// Of things.\nint b;\n"}, "src/a.h:2: a comment begins")
        for file in ("include/nvfp4/a.h", "cli/a.cc", "python/src/a.cc", "tests/a.h", "bench/a.cu"):
            self.expect({file: "  // Of things.\n"}, f"{file}:1: a comment begins with 'Of'")

    def test_finds_a_docstring_that_begins_so(self):
        self.expect({"python/nvfp4/a.py": 'def f():\n    """Of things."""\n'},
                    "python/nvfp4/a.py:1: a docstring begins with 'Of'")

    def test_accepts_other_comments(self):
        accepted = ("/// The sum of x.\n/// That is a sentence.\nint a;\n\n// Often true.\n// As here.\nint b;\n"
                    "int c; // the sum\n       // That is all\n")
        for files in ({"src/a.h": accepted}, {"tools/a.h": "// Of things.\n"}):
            code, output = run_check("check_style", files)
            self.assertEqual(code, 0, output)

    def test_finds_a_test_name_of_nine_words(self):
        for file, name in (("tests/a_test.cc", "TEST(A, OneTwoThreeFourFiveSixSevenE4M3)"),
                           ("tests/python/test_a.py", "def test_a_b_c_d_e_f_g_h_i(): pass")):
            self.expect({file: name + "\n"}, "has 9 words, at most 8")

    @unittest.skipUnless(shutil.which("clang-format-16"), "clang-format-16 is not installed")
    def test_finds_a_file_that_is_not_formatted(self):
        self.expect({"src/a.cc": "int  a=1;\n"}, "src/a.cc: not formatted")


class SkipReasons(unittest.TestCase):
    def test_gives_the_reason_of_each_skipped_test(self):
        results = """<testsuite>
            <testcase name="A.Passes" status="run"><system-out>fine</system-out></testcase>
            <testcase name="B.Skips" status="notrun"><skipped message=""/>
              <system-out>[ RUN ]\na.cc:3: Skipped\nno disk here\n[ SKIPPED ]</system-out></testcase>
            <testcase name="c" status="notrun"><skipped message=""/>
              <system-out>skipped: no torch\n</system-out></testcase>
            </testsuite>"""
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(results)
            file.flush()
            run = subprocess.run([sys.executable, TOOLS / "skip_reasons.py", file.name],
                                 capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout.split("\n")[1:],
                         ["Skipped, and why:", "  B.Skips: no disk here", "  c: no torch", ""])


if __name__ == "__main__":
    unittest.main()
