"""What frames of a Python stack are known to do: the table behind the causes.

A frame is known by the file of its library ("PIL/ImageFile.py") and its function. A call into C leaves
no frame of its own; there the source of the call tells ("cv2.imread(path)").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jupyter_gpuprof.records.samples import Frame

_OURS = str(Path(__file__).parents[1]).replace("\\", "/") + "/"
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
_STDLIB = re.compile(
    r".*/lib/python3(?:\.\d+t?)?/|[a-z]:/.*/(?:python|\w*conda)\d*/(?:envs/[^/]+/)?lib/", re.IGNORECASE
)
_CELL = re.compile(r"(?:ipykernel|xpython)_\d+/\d+\.py$|^<ipython-input-(\d+)-")
#: Code that torch generates at run time.
_GENERATED = re.compile(r"^<eval_with_key>|/torchinductor_[^/]*/")
#: What runs everything and says nothing of what is done.
_PLUMBING = re.compile(
    r"(jupyter_gpuprof|IPython|ipykernel|tornado|traitlets|zmq|debugpy|_?pydev\w*|asyncio|concurrent|importlib)/"
    r"|(threading|runpy|contextlib|functools|codecs|abc|enum|typing)\.py|torch/utils/_contextlib\.py|<"
)


@lru_cache(maxsize=1 << 14)
def library(file: str) -> str:
    """The file within its library ("PIL/Image.py"), "" for a person's own file or cell."""
    path = file.replace("\\", "/")
    if path.startswith(_OURS):
        return "jupyter_gpuprof/" + path[len(_OURS) :]
    if _GENERATED.search(path):
        return "torch/generated.py"
    if _CELL.search(path):
        return ""
    if path.startswith(("<frozen ", "<string>", "<__array_function__")):
        return path
    installed = _INSTALLED.match(path) or _STDLIB.match(path)
    return path[installed.end() :] if installed else ""


def is_own(frame: Frame) -> bool:
    """Whether it is the person's own code."""
    return not library(frame.file)


def short_name(frame: Frame) -> str:
    """The function's name without its class (interpreters since 3.11 tell both)."""
    return frame.function.rpartition(".")[2]


@lru_cache(maxsize=1 << 14)
def is_plumbing(file: str) -> bool:
    """Whether the file says nothing of what is done."""
    return bool(_PLUMBING.match(library(file)))


def place(frame: Frame, names: Mapping[str, str]) -> str:
    """Where a frame is, for a person: ``train.py:12``, or ``cell [3], line 4``.

    Args:
        frame: a frame of the person's own code.
        names: what to call files, by their path ("cell [3]").
    """
    path = frame.file.replace("\\", "/")
    cell = _CELL.search(path)
    name = names.get(frame.file)
    if name is None and cell is not None:
        name = f"cell [{cell.group(1)}]" if cell.group(1) else "cell"
    if name is not None and name.startswith("cell"):
        return f"{name}, line {frame.line}"
    return f"{name or path.rpartition('/')[2]}:{frame.line}"


def callee(text: str) -> str:
    """What a call's source calls: ``.read`` of ``open(path).read()``; "" where it is no call."""
    if not text.endswith(")"):
        return ""
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[position], 0)
        if not depth:
            found = re.search(r"[\w.]*$", text[:position])
            return found.group() if found else ""
    return ""


@dataclass(frozen=True)
class Known:
    """One row of a table: what frames of these files (and functions) do."""

    activity: str
    files: re.Pattern[str]
    functions: re.Pattern[str]


@dataclass(frozen=True, eq=False)
class Table:
    """What is known of frames for one question; of each tuple the first row that fits counts.

    Args:
        files: rows for files of libraries.
        calls: activities by what is called.
        functions: activities by the name of a person's own function.
    """

    files: tuple[Known, ...]
    calls: tuple[tuple[str, re.Pattern[str]], ...]
    functions: tuple[tuple[str, re.Pattern[str]], ...]

    def of_library(self, frame: Frame) -> str:
        """What a library's frame does, "" where it is not known."""
        return _of_library(self, library(frame.file), short_name(frame))

    def of_call(self, text: str) -> str:
        """What the source of a call does: by what it calls, else by any call in a whole line."""
        return _of_call(self, text)

    def of_function(self, frame: Frame) -> str:
        """What a person's own function does, by its name."""
        return next((activity for activity, row in self.functions if row.search(short_name(frame))), "")


@lru_cache(maxsize=1 << 14)
def _of_library(table: Table, file: str, function: str) -> str:
    for row in table.files:
        if row.files.match(file) and row.functions.search(function):
            return row.activity
    return ""


#: Calls that take no time themselves: what stands inside them does.
_TRIVIAL = re.compile(r"(^|\.)(append|extend|add|update|insert|list|tuple|dict|str|round|min|max|len|next)$")
#: A whole line, which is what interpreters before 3.11 tell (and py-spy).
_LINE = re.compile(r"[^(]*[^=!<>(]=(?!=)|\s*(return|for|with|if|elif|while|yield|await|assert)\b")


@lru_cache(maxsize=1 << 14)
def _of_call(table: Table, text: str) -> str:
    called = callee(text)
    exact = called and not _LINE.match(text) and not _TRIVIAL.search(called)
    names = [called] if exact else re.findall(r"[\w.]+(?=\()", text)
    return next((activity for activity, row in table.calls if any(row.search(name) for name in names)), "")


def _rows(*rows: tuple[str, str] | tuple[str, str, str]) -> tuple[Known, ...]:
    return tuple(Known(row[0], re.compile(row[1]), re.compile("".join(row[2:]))) for row in rows)


def _names(*rows: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((activity, re.compile(pattern)) for activity, pattern in rows)


#: Making a batch.
INPUT = Table(
    files=_rows(
        ("handing over", r"multiprocessing/(queues|connection|reduction|resource_sharer|heap|shared_memory)"),
        ("handing over", r"torch/multiprocessing/|torch/utils/data/_utils/pin_memory"),
        ("collating", r"torch/utils/data/_utils/collate|torch/nn/utils/rnn|transformers/data/data_collator"),
        ("decoding", r"PIL/(ImageFile|\w+ImagePlugin|TiffTags|ExifTags)"),
        ("decoding", r"PIL/Image\.py", r"^(open|_open_core|preinit|init|frombytes|_getdecoder)$"),
        ("transforming", r"PIL/"),
        ("reading", r"torchvision/io/", r"^read_file$"),
        ("decoding", r"torchvision/io/|torchaudio/(_?backend|_torchcodec|io)|torchcodec/|av/"),
        ("decoding", r"(imageio|imageio_ffmpeg|tifffile|rawpy|pydicom|nibabel|decord|soundfile|audioread)\b"),
        ("decoding", r"(json|gzip|zlib|bz2|lzma|pickle|_compression|csv|base64)\b"),
        ("decoding", r"(msgpack|orjson|simplejson|ujson|zstandard|lz4|blosc|numcodecs|nvidia/dali)\b"),
        ("decoding", r"pandas/io/|librosa/core/audio|skimage/io|datasets/(features|formatting)/"),
        ("reading", r"(socket|ssl|http|urllib|tarfile|zipfile|shelve|dbm|sqlite3|ftplib|glob|fileinput)\b"),
        ("reading", r"(pathlib|tempfile|mmap|os|genericpath|shutil)\b"),
        ("reading", r"(requests|urllib3|httpx|httpcore|aiohttp|fsspec|s3fs|s3torchconnector|boto|boto3)\b"),
        ("reading", r"(botocore|aiobotocore|s3transfer|gcsfs|google|adlfs|azure|minio|smart_open|h11|h2)\b"),
        (
            "reading",
            r"(h5py|zarr|lmdb|pyarrow|fastparquet|polars|webdataset|streaming|tensorstore|netCDF4)\b",
        ),
        ("reading", r"(huggingface_hub|xarray|tables|litdata|safetensors)\b|datasets/(table|arrow)"),
        ("reading", r"numpy/(lib/(_?npyio|_?format)|_?core/memmap)|torch/(serialization|storage)"),
        ("transforming", r"(torchvision|torchaudio)/(transforms|functional|prototype)"),
        (
            "transforming",
            r"(albumentations|albucore|imgaug|kornia|augly|skimage|scipy|monai|torchio|librosa)\b",
        ),
        ("transforming", r"(transformers|tokenizers|sentencepiece|tiktoken|nltk|spacy|audiomentations)\b"),
    ),
    calls=_names(
        ("collating", r"(^|\.)(default_)?collate(_fn)?$"),
        ("handing over", r"(^|\.)(pin_memory|share_memory_|put)$"),
        ("decoding", r"(^|\.)(imread\w*|imdecode\w*|decode|decode_\w+|loads|decompress|unpackb|frombytes)$"),
        ("decoding", r"(^|\.)(Image\.open|(json|pickle|torchaudio)\.load|av\.open|read_image|VideoCapture)$"),
        ("reading", r"(^|\.)(open|read\w*|recv|recv_into|urlopen|get_object|download\w*|fromfile|memmap)$"),
        ("reading", r"(^|\.)((np|numpy|torch)\.load|loadtxt|genfromtxt|requests\.\w+|h5py\.File|txn\.get)$"),
        ("reading", r"(^|\.)(listdir|scandir|os\.stat)$"),
        ("sleeping", r"(^|\.)sleep$"),
    ),
    functions=_names(
        ("collating", r"collate"),
        ("decoding", r"decod|decompress"),
        ("reading", r"(^|_)(read|download)(_|$)"),
        ("transforming", r"augment|transform"),
    ),
)

_SAVERS = r"(accelerate|transformers|lightning|pytorch_lightning|diffusers|peft)/"
#: What the training thread does outside of fetching.
HOST = Table(
    files=_rows(
        ("checkpoint", r"torch/(serialization|distributed/checkpoint)|safetensors/"),
        ("checkpoint", r"(lightning|pytorch_lightning)/.*checkpoint"),
        ("checkpoint", _SAVERS, r"^_*save(_|$)"),
        ("synchronising", r"torch/_tensor_str"),
        ("synchronising", r"torch/_tensor\.py", r"^(__(repr|format|array|iter|contains)__|tolist)$"),
        ("synchronising", r"torch/\w+/(__init__|streams|_utils)\.py", r"^synchronize$"),
        ("metrics", r"(torchmetrics|sklearn/metrics|evaluate|torcheval|ignite/metrics)\b"),
        ("logging", r"(logging|csv|wandb|mlflow|tqdm|rich|loguru|tensorboardX?|comet_ml|neptune|clearml)\b"),
        ("logging", r"torch/utils/tensorboard|(aim|dvclive|swanlab|structlog|trackio|matplotlib)\b"),
        ("logging", r"(lightning|pytorch_lightning)/.*(logger|progress)"),
        ("launching", r"torch/(?!utils/data)"),
    ),
    calls=_names(
        (
            "checkpoint",
            r"(^|\.)(torch\.save|save_file|save_pretrained|save_checkpoint|save_state|pickle\.dump)$",
        ),
        ("synchronising", r"(^|\.)(item|cpu|tolist|numpy|nonzero|synchronize)$|^(float|int|bool)$"),
        ("moving data", r"(^|\.)(to|cuda|as_tensor|from_numpy|torch\.tensor|pin_memory|copy_)$"),
        ("logging", r"(^|\.)(print|display|log|log_\w+|add_scalars?|writerows?|write|info|debug|warning)$"),
        ("logging", r"(^|\.)set_postfix\w*$"),
        ("metrics", r"accuracy|metric|confusion|f1_score|(^|[._])auc|auroc"),
        ("launching", r"(^|\.)(backward|zero_grad|step)$|^(torch|F|nn)\."),
    ),
    functions=_names(
        ("checkpoint", r"^_*(save|write)(_|$)|^_*checkpoint$"),
        ("metrics", r"metric|accuracy|confusion|f1_score|(^|_)auc|auroc"),
        ("logging", r"^_*(log|report|print)(_|$)"),
        ("launching", r"^forward$"),
    ),
)
