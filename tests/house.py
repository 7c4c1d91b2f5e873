"""The rules of docs/architecture.md on packages, sizes and names, and those on tests.

Each function returns what breaks a rule as lines of text, and takes the folder that it looks at, so
that a test can see it fail on a tree with a planted mistake.
"""

import ast
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

# Lowest first: a package or module imports what stands before it, its own layer, and itself.
LAYERS = (
    {"_core"},
    {"base"},
    {"protocol"},
    {"codecs"},
    {"client"},
    {"cluster"},
    {"pipeline"},
    {"stores"},
    {"filesystem", "obspec"},
    {"server"},
    {"__init__"},  # the public names
    {"drawing"},
    {"copies", "dask"},
    {"cli"},
    {"__main__"},
)
# Lower layers that it must not import all the same.
FORBIDDEN = {
    "server": {"client", "cluster", "pipeline", "stores", "filesystem", "obspec"},
}
# Folders that may all the same: the source of a server may be at other servers.
ALLOWED = {
    "server/sources": {"client", "cluster"},
}

# Modules of a folder, or units of C++, at the most: one that needs more has two ideas.
MOST_MODULES = 20

# Lines of a file, and of a function without its docstring; parameters of a function without `self`.
# clang-tidy has the last two for the native core.
MOST_LINES = 700
MOST_FUNCTION_LINES = 70
MOST_PARAMETERS = 7

# With more parameters: options by keyword, as users give them, and what obspec's protocols have.
WIDE = {
    "base/options.py:of",
    "drawing/chart.py:draw",
    "obspec/store.py:put",
    "obspec/store.py:put_async",
    "server/options/described.py:option",
    "stores/store.py:__init__",
}

# What only tests/eventually.py calls.
SLEEPS = {"time.sleep", "asyncio.sleep"}

# Only zarr_compat imports these: zarr may change them in any release.
PRIVATE_ZARR = re.compile(r"zarr\.(core|codecs\._\w+)(\.|$)")

# What geometry may import, from outside of itself.
PURE = {"__future__", "bisect", "collections", "dataclasses", "enum", "functools", "itertools"}
PURE |= {"math", "numpy", "operator", "typing"}

# The same for folders of native/, whose #include lines name the folder.
NATIVE_LAYERS = (
    {"base"},
    {"memory"},
    {"threads"},
    {"protocol", "shared", "files"},
    {"ucx", "stream", "storage"},
    {"local"},
    {"cache", "client"},
    {"sessions"},
    {"stream_client", "stream_server"},
    {"ucx_client", "local_client", "ucx_server", "local_server"},
    {"server"},
    {"bindings"},
)
# A conversation, at either side, is the same whatever carries it.
NATIVE_FORBIDDEN = {
    "client": {"ucx", "stream", "local"},
    "sessions": {"ucx", "stream", "local"},
}

# A class of a namespace, as clang-format writes it: not one that is only declared.
NATIVE_CLASS = re.compile(
    r"^(?:class|struct|union|enum(?: class)?) (?:\[\[\w+\]\] |[A-Z]+(?:\([^)]*\))? )?(\w+)"
    r"(?: final)?(?: : [^;{]*)? \{",
    re.MULTILINE,
)

# Of another room of native/, a file may say that there is a class, without its header.
NATIVE_FORWARD = re.compile(
    r"^namespace ucxstore::\w+ \{\n(?:(?:class|struct) \w+;\n)+\}$", re.MULTILINE
)
# Where a file opens a namespace of ours, or takes in all names of another.
NATIVE_NAMESPACE = re.compile(
    r"^namespace (ucxstore\b[\w:]*) \{$|^ *(using namespace (?!std::|nb::|nanobind::).*;)$",
    re.MULTILINE,
)

type Import = tuple[Path, int, str]


def imports(package: Path) -> Iterator[Import]:
    """Yield every import of the package: file, line, and the full name of the module.

    Also those in functions and under ``TYPE_CHECKING``. Of what is ours, ``from a import b`` is an
    import of ``a.b`` where that is a module, else of ``a``.
    """
    for file in sorted(package.rglob("*.py")):
        for node in _import_nodes(file.read_text()):
            match node:
                case ast.Import():
                    for alias in node.names:
                        yield file, node.lineno, alias.name
                case ast.ImportFrom():
                    origin = _origin(node, file, package)
                    for alias in node.names:
                        name = f"{origin}.{alias.name}"
                        is_ours = origin.split(".")[0] == package.name
                        is_object = is_ours and not _is_module(name, package)
                        yield file, node.lineno, origin if is_object else name


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _import_nodes(text: str) -> list[ast.stmt]:
    nodes = ast.walk(_tree(text))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def _origin(node: ast.ImportFrom, file: Path, package: Path) -> str:
    if not node.level:
        return node.module or ""
    above = file.relative_to(package.parent).parts[: -node.level]
    return ".".join([*above, *([node.module] if node.module else [])])


def _is_module(name: str, package: Path) -> bool:
    path = package.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or path.with_suffix(".pyi").exists()


def room_of(module: str) -> str:
    """Return which package, or module beside the packages, a module of ours is in."""
    return module.split(".")[1] if "." in module else "__init__"


def upward_imports(package: Path) -> list[str]:
    """Return the imports that go up, or to where a package has no business."""
    height = {room: number for number, layer in enumerate(LAYERS) for room in layer}
    found = []
    for file, line, module in imports(package):
        inside = file.relative_to(package)
        here, there = inside.parts[0].removesuffix(".py"), room_of(module)
        if (
            module.split(".")[0] != package.name
            or here == there
            or not {here, there} <= set(height)
        ):
            continue
        allowed = ALLOWED.get(inside.parent.as_posix(), set())
        if height[there] > height[here] or there in FORBIDDEN.get(here, set()) - allowed:
            found.append(f"{inside}:{line}: imports {module}")
    return found


def circles(package: Path) -> list[str]:
    """Return the folders that import, perhaps by way of others, what imports them.

    Looked at are folders beside one another, and the modules beside them, each by itself.
    """
    found = []
    for folder in sorted({file.parent for file in package.rglob("__init__.py")} - {package}):
        graph = _graph_of(folder, package)
        for name in sorted(graph):
            way = _way(graph, name, name) if (folder / name).is_dir() else []
            if way and not any(one < name and (folder / one).is_dir() for one in way):
                found.append(f"{folder.relative_to(package)}: {' -> '.join([name, *way])}")
    return found


def _graph_of(folder: Path, package: Path) -> dict[str, set[str]]:
    above = [package.name, *folder.relative_to(package).parts]
    graph: dict[str, set[str]] = {}
    for file, _, module in imports(package):
        inside, parts = file.relative_to(package.parent).parts, module.split(".")
        if [*inside[: len(above)]] == above == parts[: len(above)]:
            here = inside[len(above)].removesuffix(".py")
            there = parts[len(above)] if len(parts) > len(above) else "__init__"
            graph.setdefault(here, set()).update({there} - {here})
    return graph


def _way(graph: Mapping[str, set[str]], begin: str, end: str) -> list[str]:
    """Return a shortest way, without where it begins; an empty one if there is none."""
    ways = {begin: [begin]}
    todo = deque([begin])
    while todo:
        name = todo.popleft()
        for following in sorted(graph.get(name, ())):
            if following == end:
                return [*ways[name][1:], end]
            if following not in ways:
                ways[following] = [*ways[name], following]
                todo.append(following)
    return []


def crowded(root: Path) -> list[str]:
    """Return the folders that have too many modules, or too many units in native/."""
    counts = Counter(file.parent for file in (root / "ucxstore").rglob("[!_]*.py"))
    units = {file.with_suffix("") for file in (root / "native").rglob("*.[ch]pp")}
    counts.update(unit.parent for unit in units)
    return [
        f"{folder.relative_to(root).as_posix()}: {count} modules"
        for folder, count in sorted(counts.items())
        if count > MOST_MODULES
    ]


def long_files(root: Path) -> list[str]:
    """Return the files of the package and of the native core that have too many lines."""
    files = [*(root / "ucxstore").rglob("*.py"), *(root / "native").rglob("*.[ch]pp")]
    found = []
    for file in sorted(files):
        name = file.relative_to(root).as_posix()
        count = file.read_text().count("\n")
        if count > MOST_LINES:
            found.append(f"{name}: {count} lines")
    return found


def large_functions(package: Path) -> list[str]:
    """Return the functions that have too many lines or parameters."""
    found = []
    for file in sorted(package.rglob("*.py")):
        inside = file.relative_to(package).as_posix()
        for node in ast.walk(_tree(file.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = f"{inside}:{node.name}"
            lines, parameters = _lines_of(node), _parameters_of(node)
            if lines > MOST_FUNCTION_LINES:
                found.append(f"{name}: {lines} lines")
            if parameters > MOST_PARAMETERS and name not in WIDE:
                found.append(f"{name}: {parameters} parameters")
    return found


type Function = ast.FunctionDef | ast.AsyncFunctionDef


def _lines_of(node: Function) -> int:
    lines = _height_of(node)
    return lines if ast.get_docstring(node) is None else lines - _height_of(node.body[0])


def _height_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters_of(node: Function) -> int:
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def repeated_classes(root: Path) -> list[str]:
    """Return the names that several classes have, in Python or in C++.

    Not looked at are classes within others, whose full name has the other's.
    """
    python, native = Counter[str](), Counter[str]()
    for file in (root / "ucxstore").rglob("*.py"):
        python.update(one.name for one in _tree(file.read_text()).body if type(one) is ast.ClassDef)
    for file in (root / "native").rglob("*.[ch]pp"):
        native.update(set(NATIVE_CLASS.findall(file.read_text())))
    return [
        f"{name}: {count} classes in {language}"
        for language, counts in (("Python", python), ("C++", native))
        for name, count in sorted(counts.items())
        if count > 1
    ]


def unused_words(root: Path) -> list[str]:
    """Return the terms of the glossary that have a word which the code does not have."""
    files = [*(root / "ucxstore").rglob("*.py"), *(root / "native").rglob("*.[ch]pp")]
    there: set[str] = set()
    for file in files:
        # CamelCase and snake_case are several words.
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", file.read_text())
        there.update(word.lower() for word in words)
    rows = re.findall(r"^\| ([^|]+?) \|", (root / "docs/glossary.md").read_text(), re.MULTILINE)
    terms = [term for row in rows if row != "word" for term in row.split(", ")]
    return [term for term in terms if not set(term.lower().strip("`").split()) <= there]


def unplaced(package: Path) -> list[str]:
    """Return the packages and modules in no layer, and those in a layer that are not there."""
    there = {file.relative_to(package).parts[0] for file in package.rglob("*.py*")}
    rooms = {name.split(".")[0] for name in there} - {"__pycache__"}
    listed = {room for layer in LAYERS for room in layer}
    return [
        *(f"{room} is in no layer" for room in sorted(rooms - listed)),
        *(f"{room} is in a layer, and is not there" for room in sorted(listed - rooms)),
    ]


def private_zarr_imports(package: Path) -> list[str]:
    """Return the imports of zarr's private parts outside of zarr_compat."""
    return [
        f"{file.relative_to(package)}:{line}: imports {module}"
        for file, line, module in imports(package)
        if PRIVATE_ZARR.match(module) and file != package / "base/zarr_compat.py"
    ]


def impure_imports(package: Path) -> list[str]:
    """Return the imports of pipeline/geometry that are neither pure nor its own."""
    own = f"{package.name}.pipeline.geometry"
    return [
        f"{file.relative_to(package)}:{line}: imports {module}"
        for file, line, module in imports(package)
        if "pipeline/geometry/" in file.relative_to(package).as_posix()
        and module != own
        and not module.startswith(f"{own}.")
        and module.split(".")[0] not in PURE
    ]


def upward_includes(native: Path) -> list[str]:
    """Return the #include lines that go up between the folders of the native core."""
    height = {folder: number for number, layer in enumerate(NATIVE_LAYERS) for folder in layer}
    found = []
    for file in sorted(native.rglob("*.[ch]pp")):
        inside = file.relative_to(native)
        here = inside.parts[0]
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"(\w+)/', line)
            if match is None or match[1] == here:
                continue
            if here not in height or match[1] not in height:
                found.append(f"{inside}:{number}: in no layer of tests/house.py: {line.strip()}")
            elif height[match[1]] >= height[here] or match[1] in NATIVE_FORBIDDEN.get(here, ()):
                found.append(f"{inside}:{number}: {here} includes {line.split()[1]}")
    return found


def wrong_namespaces(native: Path) -> list[str]:
    """Return where a file opens another namespace than its folder's, and files that open none.

    A file that only defines macros needs none.
    """
    found = []
    for file in sorted(native.rglob("*.[ch]pp")):
        inside = file.relative_to(native)
        room = f"ucxstore::{inside.parts[0]}"
        text = file.read_text()
        opened = [
            one[1] or one[2] for one in NATIVE_NAMESPACE.finditer(NATIVE_FORWARD.sub("", text))
        ]
        wrong = [one for one in opened if one != room and not one.startswith(f"{room}::")]
        found += [f"{inside}: {one}" for one in wrong]
        if not opened and re.search(r"^[^#/\s]", text.replace("\\\n", ""), re.MULTILINE):
            found.append(f"{inside}: no {room}")
    return found


def packages(root: Path) -> set[str]:
    """Return the packages of ours, each with a slash at its end, and the modules beside them."""
    trees = ("ucxstore", "profiles", "benchmarks")
    python = {file.parent for tree in trees for file in (root / tree).rglob("__init__.py")}
    native = {file.parent for file in (root / "native").rglob("*.[ch]pp")}
    modules = {file for file in (root / "ucxstore").glob("*.py") if file.stem != "__init__"}
    folders = {f"{folder.relative_to(root).as_posix()}/" for folder in python | native}
    return folders | {file.relative_to(root).as_posix() for file in modules}


def described_packages(page: Path) -> dict[str, str]:
    """Return what the tables under "## Packages" name, and what they say each may import."""
    _, _, section = page.read_text().partition("\n## Packages\n")
    section, _, _ = section.partition("\n## ")
    rows = re.findall(r"^\| *`([^`]+)` *\|[^|]*\| *([^|]*?) *\|$", section, re.MULTILINE)
    return dict(rows)


def undescribed(root: Path) -> list[str]:
    """Return where the layout that is described and the layout that is there differ."""
    there, described = packages(root), described_packages(root / "docs/architecture.md")
    return [
        *(f"{name} is not described" for name in sorted(there - set(described))),
        *(f"{name} is not there" for name in described if not (root / name).exists()),
    ]


def undescribed_imports(root: Path) -> list[str]:
    """Return the imports that docs/architecture.md does not name in its third column."""
    cells = described_packages(root / "docs/architecture.md")
    allowed = {
        name: _allowed_rooms(cells[f"{Path(name).parent}/"] if text.startswith("as ") else text)
        for name, text in cells.items()
    }
    found = []
    for file, line, module in imports(root / "ucxstore"):
        path = file.relative_to(root)
        row = path.as_posix() if len(path.parts) == 2 else f"{path.parent.as_posix()}/"
        rooms = allowed.get(row)
        if rooms is None or module.split(".")[0] != "ucxstore":
            continue
        if room_of(module) not in rooms | {path.parts[1].removesuffix(".py")}:
            found.append(f"{path}:{line}: imports {module}")
    return found


def _allowed_rooms(text: str) -> set[str] | None:
    """Return what a cell of the third column allows; ``None`` for everything."""
    if not text or text.startswith(("everything", "see ")):
        return None
    rooms = set(re.findall(r"`(\w+)`", text))
    return rooms | {"_core"} if "base" in rooms else rooms


def sleeps(tests: Path) -> list[str]:
    """Return where tests sleep, but in the one module that may: a fixed time proves nothing."""
    return [
        f"{file.relative_to(tests)}:{node.lineno}: {ast.unparse(node)}"
        for file in sorted(tests.rglob("*.py"))
        if file != tests / "eventually.py"
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in SLEEPS)
        or (isinstance(node, ast.ImportFrom) and _imports_sleep(node))
    ]


def _imports_sleep(node: ast.ImportFrom) -> bool:
    return any(f"{node.module}.{alias.name}" in SLEEPS for alias in node.names)


def copied_helpers(tests: Path) -> list[str]:
    """Return the functions that several files of tests have, whatever each calls it.

    Not looked at are functions within others, and methods, that are of one statement.
    """
    places: dict[str, list[str]] = {}
    for file in sorted(tests.rglob("*.py")):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body if ast.get_docstring(node) is None else node.body[1:]
                if node in tree.body or len(body) > 1:
                    place = f"{file.relative_to(tests).as_posix()}:{node.name}"
                    places.setdefault(_what_is_done(node, body), []).append(place)
    return [
        " and ".join(found)
        for found in places.values()
        if len({place.rpartition(":")[0] for place in found}) > 1
    ]


def _what_is_done(node: Function, body: list[ast.stmt]) -> str:
    """Return all of a function but its name and docstring."""
    parts = [node.args, node.returns, *node.decorator_list, *body]
    return f"{type(node).__name__} {[part and ast.dump(part) for part in parts]}"


# Names that are public all the same.
PUBLIC = {"_asdict", "_exit", "_fields", "_repr_html_", "_replace"}

# Private names of other libraries, which have no public ones for the same.
PRIVATE_OF_LIBRARIES = {
    "argparse": {"_ActionsContainer", "_actions"},
    "ctypes": {"_handle"},
    "importlib": {"_module_locks"},
    "threading": {"_at_fork_reinit"},
    "zarr": {
        "_ShardIndex",
        "_codec",
        "_decode_shard_index_sync",
        "_decode_sync",
        "_encode_shard_index_sync",
        "_get_chunk_spec",
        "_get_chunks_per_shard",
        "_get_shard_indexer_and_value",
        "_shard_index_size",
        "_store",
        "_subchunk_order_iter",
    },
}


# Those that tests use: to look at what a library has made, to call it as it calls itself.
PRIVATE_FOR_TESTS = {
    "argparse": {"_action_groups", "_actions", "_group_actions"},
    "asyncio": {"_log_destroy_pending"},
    "atexit": {"_run_exitfuncs"},
    "fsspec": {"_cat", "_copy", "_mv", "_pipe", "_rm"},
    "zarr": {
        "_chunk_grid",
        "_dimensions",
        "_encode_shard_dict_sync",
        "_get_many",
        "_get_selection",
        "_is_open",
        "_iter_chunk_regions",
        "_open",
        "_set_many",
        "_set_selection",
    },
}


def private_uses(tree: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield where a file uses a private name that is another's: file, line, and the name.

    A name is a file's own if the file defines it, or if a class there has it as ``self`` or
    ``cls``, perhaps from a class that it inherits.
    """
    for file in sorted(tree.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        defined = {name for node in nodes for name in _defined(node)}
        for node in nodes:
            for name in _used(node):
                if re.match(r"_[^_]", name) and name not in defined | PUBLIC:
                    yield file, node.lineno, name  # type: ignore[attr-defined]


def _defined(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return [node.attr]
    return []


def _used(node: ast.AST) -> list[str]:
    match node:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
            return []
        case ast.Attribute():
            return [node.attr]
        case ast.ImportFrom():
            names = [alias.name for alias in node.names]
            return [name for name in names if (node.module, name) != ("ucxstore", "_core")]
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr")
            | ast.Attribute(attr="setattr" | "delattr"),
            args=[_, ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def private_uses_of_ours(package: Path) -> list[str]:
    """Return where a module of ours uses a private name of another one."""
    return _private_uses_but(package, PRIVATE_OF_LIBRARIES)


def private_uses_of_tests(tests: Path) -> list[str]:
    """Return where a module of tests uses a private name of ours that is another module's."""
    return _private_uses_but(tests, PRIVATE_FOR_TESTS)


def _private_uses_but(tree: Path, names_of_libraries: Mapping[str, set[str]]) -> list[str]:
    libraries = set().union(*names_of_libraries.values())
    return [
        f"{file.relative_to(tree)}:{line}: {name} is private to another module"
        for file, line, name in private_uses(tree)
        if name not in libraries
    ]
