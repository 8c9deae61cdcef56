"""Prints the failed tests of a CTest JUnit file with the end of their output, then one line "passed failed skipped".

A test that CTest could not start (not built, missing file) is "notrun" there, as a skipped one is: only the skip code makes a skip.
"""
import sys
import xml.etree.ElementTree as ElementTree

OUTPUT_LINES = 40


def main(path):
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.get("status") == "run":
            passed += 1
        elif skip is not None and skip.get("message", "").startswith("SKIP_"):
            skipped += 1
        else:
            failed += 1
            reason = next((e.get("message", "") for e in case if e.tag in ("failure", "skipped")), "")
            print(f"-- {case.get('name')}: {case.get('status')} {reason}")
            print("\n".join((case.findtext("system-out") or "").splitlines()[-OUTPUT_LINES:]))
    print(passed, failed, skipped)


main(sys.argv[1])
