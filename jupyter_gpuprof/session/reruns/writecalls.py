"""Calls in a piece of source that write files, told by their names."""

from __future__ import annotations

import ast
import io
import types
from collections.abc import Callable, Iterator
from typing import Any

#: Functions that write, by the package they come from.
_FUNCTIONS: dict[str, frozenset[str]] = {
    package: frozenset(names.split())
    for package, names in {
        "torch": "save export_chrome_trace export_stacks tensorboard_trace_handler async_save",
        "numpy": "save savez savez_compressed savetxt",
        "pickle": "dump", "_pickle": "dump", "cloudpickle": "dump", "dill": "dump", "joblib": "dump",
        "json": "dump", "yaml": "dump safe_dump dump_all", "toml": "dump", "tomli_w": "dump",
        "marshal": "dump",
        "shutil": "copy copy2 copyfile copyfileobj copytree move rmtree make_archive unpack_archive",
        "os": "remove unlink rename renames replace makedirs mkdir rmdir removedirs truncate symlink link "
              "system popen execv execvp spawnv spawnvp posix_spawn",
        "subprocess": "run call check_call check_output Popen getoutput getstatusoutput",
        "cv2": "imwrite VideoWriter", "imageio": "imwrite imsave mimwrite mimsave",
        "torchvision": "save_image write_png write_jpeg write_video", "torchaudio": "save",
        "soundfile": "write", "scipy": "savemat write", "safetensors": "save_file save_model",
        "sqlite3": "connect",
        "pyarrow": "write_table write_dataset write_feather", "shelve": "open",
        "logging": "FileHandler RotatingFileHandler TimedRotatingFileHandler",
        "urllib": "urlretrieve", "gdown": "download",
        "wandb": "init log save watch log_artifact", "neptune": "init_run", "clearml": "init",
        "mlflow": "start_run autolog log_metric log_metrics log_param log_params log_artifact log_model "
                  "set_experiment",
    }.items()
}  # fmt: skip
_PACKAGE_OF = {"posix": "os", "nt": "os"}
#: Methods and functions that write whatever they belong to.
_ANYONES = frozenset(
    [
        "write_text",
        "write_bytes",
        "to_parquet",
        "to_pickle",
        "to_excel",
        "to_feather",
        "to_hdf",
        "to_sql",
        "to_netcdf",
        "to_zarr",
        "to_orc",
        "to_stata",
        "write_csv",
        "write_parquet",
        "write_json",
        "write_ndjson",
        "write_ipc",
        "write_excel",
        "savefig",
        "imsave",
        "save_pretrained",
        "save_checkpoint",
        "save_model",
        "save_weights",
        "save_file",
        "save_state",
        "save_to_disk",
        "push_to_hub",
        "init_trackers",
        "log_artifact",
        "tofile",
        "mkdir",
        "rmdir",
        "unlink",
        "touch",
    ]
)
#: Write only where they are told where to.
_WHEN_TOLD = frozenset(
    ["to_csv", "to_json", "to_string", "to_html", "to_markdown", "to_latex", "to_xml", "save"]
)
#: Classes that write as long as they live.
KEEPERS = frozenset(
    [
        "SummaryWriter",
        "FileWriter",
        "CSVLogger",
        "TensorBoardLogger",
        "WandbLogger",
        "MLFlowLogger",
        "CometLogger",
        "NeptuneLogger",
        "ModelCheckpoint",
        "CSVWriter",
    ]
)
_OPEN_AS = {"open": 1, "File": 1, "ZipFile": 1, "TarFile": 1}
_WRITING_MAGICS = frozenset(
    [
        "writefile",
        "file",
        "save",
        "notebook",
        "logstart",
        "pip",
        "conda",
        "mamba",
        "micromamba",
        "uv",
        "sx",
        "sc",
        "system",
        "cp",
        "mv",
        "rm",
        "rmdir",
        "mkdir",
        "bash",
        "sh",
        "script",
    ]
)
_RUNNING_MAGICS = frozenset({"time", "timeit", "prun"})
#: Commands that only show something.
_SHOWING = frozenset(
    [
        "nvidia-smi",
        "rocm-smi",
        "ls",
        "cat",
        "pwd",
        "head",
        "tail",
        "df",
        "du",
        "free",
        "which",
        "wc",
        "hostname",
        "uname",
        "date",
        "whoami",
    ]
)

#: The value of an expression where it is known; raises LookupError elsewhere.
Resolve = Callable[[ast.expr], Any]


def writing_calls(
    tree: ast.AST, resolve: Resolve, is_own: Callable[[object], bool]
) -> Iterator[tuple[int, str]]:
    """The line and a name for each call in `tree` that writes a file.

    Args:
        tree: source.
        resolve: gives the value of a name or attribute.
        is_own: whether a value is a function or class of the person's, whose own source is looked at.
    """
    imports = _imports(tree)
    defined = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    buffers = _buffers(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        value = _value(node.func, resolve)
        if (isinstance(node.func, ast.Name) and node.func.id in defined) or is_own(value):
            continue
        what = _magic(node, resolve, is_own) or _what(node, value, imports, resolve)
        if what and not any(_in_memory(part, buffers, resolve) for part in _arguments(node)):
            yield node.lineno, what


def _what(call: ast.Call, value: object, imports: dict[str, str], resolve: Resolve) -> str:
    """How to call what the call writes with; "" for nothing."""
    name = _dotted(call.func)
    last = imports.get(name, name).rpartition(".")[2]
    if isinstance(value, types.FunctionType) and isinstance(call.func, ast.Name):
        last = value.__name__
    exist_ok = _keyword(call, "exist_ok")
    if isinstance(exist_ok, ast.Constant) and exist_ok.value is True:
        return ""  # a folder that is there already
    package = _package(call.func, value, imports, resolve)
    if last in _FUNCTIONS.get(package, ()):
        text_of_yaml = package == "yaml" and len(call.args) < 2 and not _keyword(call, "stream")
        return "" if text_of_yaml else name
    if last in _OPEN_AS and package not in ("PIL", "os", "zarr"):
        return f"{name} for writing" if _opens_to_write(call, isinstance(call.func, ast.Attribute)) else ""
    if package == "os" and last == "open":
        return name if "O_RDONLY" not in ast.dump(call) else ""
    if last in KEEPERS:
        return name
    if last == "basicConfig" and _keyword(call, "filename"):
        return name
    if last == "Trainer" and package in ("lightning", "pytorch_lightning", "lightning_fabric"):
        return "" if _is_quiet_trainer(call) else f"{name}, which logs and keeps checkpoints"
    if last.endswith("TrainingArguments"):
        strategy = _keyword(call, "save_strategy")
        quiet = isinstance(strategy, ast.Constant) and strategy.value == "no"
        return "" if quiet else f"{name}, which keeps checkpoints"
    if last in _ANYONES or (last in _WHEN_TOLD and isinstance(call.func, ast.Attribute) and _is_told(call)):
        return name
    return ""


def is_quiet(value: object) -> bool:
    """Whether an object that lives already leaves no files when it is used."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if kind.__name__ in KEEPERS:
        return False
    if kind.__name__.endswith("Trainer") and package in ("lightning", "pytorch_lightning"):
        return not (getattr(value, "loggers", None) or getattr(value, "checkpoint_callbacks", None))
    if any(base.__module__ == "transformers.trainer" for base in kind.__mro__):
        strategy = getattr(getattr(value, "args", None), "save_strategy", "no")
        return str(getattr(strategy, "value", strategy)) == "no"
    return True


def _opens_to_write(call: ast.Call, is_method: bool) -> bool:
    mode: ast.expr | None = _keyword(call, "mode")
    if mode is None and len(call.args) > 1:
        mode = call.args[1]
    elif mode is None and is_method and call.args and _looks_like_mode(call.args[0]):
        mode = call.args[0]  # path.open("w")
    if mode is None or (call.args and "devnull" in ast.dump(call.args[0])):
        return False
    if not isinstance(mode, ast.Constant):
        return True
    letters = str(mode.value).partition(":")[0].partition("|")[0]
    return any(letter in letters for letter in "wax+")


def _looks_like_mode(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and set(node.value) <= set("rwaxbtU+")
    )


def _is_quiet_trainer(call: ast.Call) -> bool:
    def given(name: str, *wanted: object) -> bool:
        value = _keyword(call, name)
        return isinstance(value, ast.Constant) and value.value in wanted

    return given("fast_dev_run", True) or (given("logger", False) and given("enable_checkpointing", False))


def _is_told(call: ast.Call) -> bool:
    places = ("path", "path_or_buf", "buf", "fp", "filename", "file", "filepath")
    return bool(call.args) or any(_keyword(call, name) is not None for name in places)


def _magic(call: ast.Call, resolve: Resolve, is_own: Callable[[object], bool]) -> str:
    """What an IPython magic or a command line of the cell writes with."""
    if not isinstance(call.func, ast.Attribute) or _dotted(call.func.value) != "get_ipython":
        return ""
    texts = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else "" for a in call.args]
    match call.func.attr, texts:
        case (("system" | "getoutput"), [command, *_]):
            words = command.split()
            shows = words and words[0] in _SHOWING and ">" not in command
            return "" if shows else f"!{command}"
        case "run_line_magic", [name, body, *_] if name in _RUNNING_MAGICS:
            try:
                inside = list(writing_calls(ast.parse(body), resolve, is_own))
            except SyntaxError:
                return ""
            return inside[0][1] if inside else ""
        case "run_line_magic", [name, *_] if name in _WRITING_MAGICS:
            return f"%{name}"
        case "run_cell_magic", [name, *_] if name in _WRITING_MAGICS:
            return f"%%{name}"
    return ""


def _package(function: ast.expr, value: object, imports: dict[str, str], resolve: Resolve) -> str:
    """The top package that a called function belongs to, "" where that is not known."""
    root = function
    while isinstance(root, ast.Attribute):
        root = root.value
    owner = imports.get(root.id, "") if isinstance(root, ast.Name) else ""
    if not owner:
        found = value if value is not None else _value(root, resolve)
        if isinstance(found, types.ModuleType):
            owner = found.__name__
        elif found is not None:
            owner = getattr(found, "__module__", None) or type(found).__module__
    package = str(owner).partition(".")[0]
    return _PACKAGE_OF.get(package, package)


def _imports(tree: ast.AST) -> dict[str, str]:
    """Names that the source imports, and what each is in full."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(a.asname or a.name.partition(".")[0]): a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {(a.asname or a.name): f"{node.module}.{a.name}" for a in node.names}
    return found


def _buffers(tree: ast.AST) -> set[str]:
    """Names that the source binds to files in memory."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_buffer(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    } | {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and _is_buffer(item.context_expr)
    }


def _is_buffer(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] in ("BytesIO", "StringIO")


def _in_memory(node: ast.expr, buffers: set[str], resolve: Resolve) -> bool:
    if _dotted(node) in ("sys.stdout", "sys.stderr") or _is_buffer(node):
        return True
    if not isinstance(node, ast.Name):
        return False
    return node.id in buffers or isinstance(_value(node, resolve), (io.BytesIO, io.StringIO))


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _value(node: ast.expr, resolve: Resolve) -> Any:
    try:
        return resolve(node)
    except LookupError:
        return None


def _dotted(node: ast.expr) -> str:
    """``a.b.c``; a call or an index on the way is left out."""
    parts: list[str] = []
    while True:
        match node:
            case ast.Attribute(value=node, attr=name):
                parts.append(name)
            case ast.Call(func=node) | ast.Subscript(value=node):
                pass
            case ast.Name(id=name):
                return ".".join([name, *reversed(parts)])
            case _:
                return ".".join(reversed(parts))
