"""The project's rules about its own files: each function yields one line a violation. root is a pathlib.Path of a source tree."""
import re

MAX_LINES = 500

# What each module may include, besides itself and the public headers: what the design's data flow puts below it.
BELOW = {
    "base": "",
    "params": "base",
    "select": "params base kernel_src",
    "jit": "select params base",
    "plan": "select params base kernel_src",
    "cache": "base",
    "driver": "plan select params base kernel_src",
    "service": "driver plan jit cache select params base kernel_src",
    "api": "service driver plan jit cache select params base",
    "tools": "base",
    "tools/gpu": "tools tools/measure tests driver base",  # checks against the tests' reference
    "tools/measure": "driver jit base",
    "tools/worker": "jit select params base tools",
    "kernel_src": "",
    "include": "",
}
FOLDERS = {**{name: f"src/{name}" for name in "base params select jit plan driver service api".split()},
           **{name: name for name in ("cache", "tools/gpu", "tools/measure", "tools/worker", "tools", "kernel_src", "include", "tests")}}
# Headers of the toolkit, and the one folder that may see each.
TOOLKIT = {"cuda.h": "driver", "nvrtc.h": "jit"}
NEVER = re.compile(r"cuda_runtime|cuda_fp|cuda_bf16|cooperative_groups")

SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".md", ".txt", ".cmake", ".json", ".sh", ".py", ".in", ".supp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.$}~/-])/(?:(?:home|Users)/(?!u/|u\b)|root/|work/|mnt/|scratch/)\w|cuda-\d+\.\d+/")


def files(root, suffixes):
    for top in sorted(root.iterdir()):
        if not top.name.startswith((".", "build")):
            yield from (path for path in [top, *sorted(top.rglob("*"))] if path.is_file() and path.suffix in suffixes)


def module_of(relative):
    """The module of a path below the root, the most specific folder first."""
    matches = [name for name, folder in FOLDERS.items() if relative.startswith(folder + "/")]
    return max(matches, key=lambda name: len(FOLDERS[name]), default=None)


def resolve(root, path, name):
    """The file below the root that an include names, as a path from the root, or None for one from elsewhere."""
    for directory in (path.parent, root / "src", root, root / "kernel_src", root / "include"):
        candidate = (directory / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root.resolve()):
            return candidate.relative_to(root.resolve()).as_posix()
    return None


def include_violations(root):
    for path in files(root, SOURCE_SUFFIXES):
        relative = path.relative_to(root).as_posix()
        module = module_of(relative)
        if module not in BELOW:
            continue
        allowed = {module, "include", *BELOW[module].split()} - ({"include"} if module == "kernel_src" else set())
        for _, name in INCLUDE.findall(path.read_text()):
            target = resolve(root, path, name)
            if name in TOOLKIT and module != TOOLKIT[name]:
                yield f"{relative}: {name} belongs to {TOOLKIT[name]} alone"
            elif NEVER.search(name):
                yield f"{relative}: {name} is a toolkit header that no part may need"
            elif target is not None and module_of(target) not in allowed:
                yield f"{relative}: {module} may not include {target}"
            elif module == "kernel_src" and target is None and name not in ("stdint.h", "stddef.h", "cstdint", "cstddef"):
                yield f"{relative}: a kernel may include only files of kernel_src, not {name}"


def length_violations(root):
    for path in files(root, SOURCE_SUFFIXES):
        lines = path.read_text().count("\n")
        if lines > MAX_LINES:
            yield f"{path.relative_to(root)}: {lines} lines, at most {MAX_LINES}"


def machine_path_violations(root):
    for path in files(root, TEXT_SUFFIXES):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := MACHINE_PATH.search(line):
                yield f"{path.relative_to(root)}:{number}: {found.group(0)}... is a path of one machine"


def json_text_violations(root):
    """Outside the one helper: dump() throws where a string is no UTF-8, and the document is lost."""
    for path in files(root, SOURCE_SUFFIXES):
        relative = path.relative_to(root).as_posix()
        if relative.startswith("tests/") or relative == "src/base/json.cpp":
            continue
        for found in re.finditer(r"[.>]\s*dump\s*\(", path.read_text()):
            yield f"{relative}:{path.read_text()[:found.start()].count(chr(10)) + 1}: to_text() of base/json.h takes the place of dump()"


def settings_violations(root, table):
    """table: what the library's settings table prints, as Markdown."""
    if table.strip() not in (root / "README.md").read_text():
        yield "README.md: its settings table differs from the library's; it should read\n" + table
