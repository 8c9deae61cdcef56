"""Each rule on this tree, and on a small tree that breaks it. usage: test_rules.py [unittest arguments]"""
import os
import pathlib
import subprocess
import tempfile
import unittest

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Rule(unittest.TestCase):
    def assert_clean(self, violations):
        self.assertEqual([], list(violations))

    def broken(self, rule, tree):
        """The violations of a tree given as {path: text}."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in tree.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(rule(root))


class Includes(Rule):
    def test_the_tree_points_downwards_only(self):
        self.assert_clean(rules.include_violations(ROOT))

    def test_every_forbidden_direction_is_found(self):
        for source in rules.BELOW:
            for target, other in rules.FOLDERS.items():
                folder = rules.FOLDERS[source]
                allowed = {source, "include", *rules.BELOW[source].split()} - ({"include"} if source == "kernel_src" else set())
                tree = {f"{folder}/a.cpp": f'#include "{other.removeprefix("src/")}/b.h"\n', f"{other}/b.h": ""}
                with self.subTest(source=source, target=target):
                    self.assertEqual(0 if target in allowed else 1, len(self.broken(rules.include_violations, tree)))

    def test_toolkit_headers_stay_in_their_folder(self):
        for header, owner in rules.TOOLKIT.items():
            for name in rules.BELOW:
                folder = rules.FOLDERS[name]
                with self.subTest(header=header, folder=folder):
                    found = self.broken(rules.include_violations, {f"{folder}/a.cpp": f"#include <{header}>\n"})
                    self.assertEqual(0 if name == owner else 1, len(found))

    def test_no_part_needs_the_run_time_api_or_device_type_headers(self):
        for header in ("cuda_runtime.h", "cuda_runtime_api.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cooperative_groups.h"):
            with self.subTest(header=header):
                self.assertEqual(1, len(self.broken(rules.include_violations, {"src/driver/a.cpp": f"#include <{header}>\n"})))


class Files(Rule):
    def test_no_source_file_is_too_long(self):
        self.assert_clean(rules.length_violations(ROOT))

    def test_a_long_file_is_found(self):
        self.assertEqual(0, len(self.broken(rules.length_violations, {"src/a.cpp": "\n" * rules.MAX_LINES})))
        self.assertEqual(1, len(self.broken(rules.length_violations, {"src/a.cpp": "\n" * (rules.MAX_LINES + 1)})))

    def test_no_file_mentions_a_path_of_one_machine(self):
        self.assert_clean(rules.machine_path_violations(ROOT))

    def test_a_machine_path_is_found(self):
        for folder in ("home", "root", "work", "mnt", "scratch", "Users"):
            with self.subTest(folder=folder):
                self.assertEqual(1, len(self.broken(rules.machine_path_violations, {"a.md": f"see /{folder}/someone/x"})))

    def test_json_becomes_text_by_the_helper_alone(self):
        self.assert_clean(rules.json_text_violations(ROOT))

    def test_a_bare_dump_is_found_where_the_product_lies(self):
        for name, found in (("src/api/a.cpp", 1), ("cache/a.h", 1), ("tools/gpu/a.cpp", 1), ("include/a.hpp", 1),
                            ("src/base/json.cpp", 0), ("tests/unit/a.cpp", 0)):
            for call in ("json.dump(1)", "json\n    .dump ()", "json->dump()"):
                with self.subTest(name=name, call=call):
                    self.assertEqual(found, len(self.broken(rules.json_text_violations, {name: f"f({call});\n"})))


class Readme(Rule):
    def table(self):
        return subprocess.run([os.environ["XQAJIT_SETTINGS_TABLE"]], check=True, capture_output=True, text=True).stdout

    def test_its_settings_table_is_the_librarys(self):
        self.assert_clean(rules.settings_violations(ROOT, self.table()))

    def test_a_changed_row_is_found(self):
        table = self.table()
        changed = table.replace("XQAJIT_ARCH", "XQAJIT_ARK")
        self.assertEqual(1, len(self.broken(lambda root: rules.settings_violations(root, table), {"README.md": changed})))


if __name__ == "__main__":
    unittest.main()
