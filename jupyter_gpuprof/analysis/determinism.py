"""Which calls give something else each time: random numbers, clocks, the environment, the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["random", "clock", "environment", "network", "process", "hidden", "unknown"]
_WORDS: dict[Kind, str] = {
    "random": "draws random numbers",
    "clock": "reads the clock",
    "environment": "reads the environment",
    "network": "uses the network",
    "process": "differs from process to process",
    "hidden": "reads what cannot be seen beforehand",
    "unknown": "holds what cannot be told from its content",
}


@dataclass(frozen=True)
class Hazard:
    """One call that keeps a result from being kept.

    Args:
        call: as it is written, in full: ``random.random``.
        kind: what it does.
        place: file and line.
    """

    call: str
    kind: Kind
    place: str = ""

    def __str__(self) -> str:
        where = f" ({self.place})" if self.place else ""
        return f"{self.call}{where} {_WORDS[self.kind]}"


def _names(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names.split())


#: Full names of functions, classes and modules; each stands for all that is below it.
_CALLS: dict[Kind, tuple[str, ...]] = {
    "random": (
        "random",
        "numpy.random",
        "secrets",
        "os.urandom",
        *_names("uuid.", "uuid1 uuid4"),
        *_names(
            "torch.",
            "rand rand_like randn randn_like randint randint_like randperm bernoulli multinomial normal "
            "poisson dropout dropout_ manual_seed seed initial_seed random",
        ),
        *_names("torch.nn.functional.", "dropout dropout1d dropout2d dropout3d gumbel_softmax"),
    ),
    "clock": (
        *_names(
            "time.",
            "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns "
            "thread_time localtime gmtime ctime strftime",
        ),
        *_names("datetime.datetime.", "now utcnow today"),
        "datetime.date.today",
    ),
    "environment": (
        *_names("os.", "environ environb getenv getcwd getlogin uname cpu_count listdir"),
        *_names("posix.", "getcwd uname cpu_count"),
        *_names("platform.", "node uname"),
        "getpass.getuser",
        "sys.argv",
    ),
    "process": (
        *_names("builtins.", "id hash"),
        *_names("os.", "getpid getppid"),
        *_names("posix.", "getpid getppid"),
        *_names("threading.", "get_ident get_native_id current_thread"),
        "torch.utils.data.get_worker_info",
        "torch.utils.data._utils.worker.get_worker_info",
    ),
    "hidden": (
        *_names("builtins.", "eval exec globals"),
        *_names("importlib.", "import_module reload"),
    ),
    "network": (
        *_names(
            "",
            "socket requests httpx aiohttp urllib3 http.client ftplib smtplib boto3 botocore urllib.request",
        ),
    ),
}
_KINDS: dict[str, Kind] = {call: kind for kind, calls in _CALLS.items() for call in calls}
#: Methods of whatever it is: those of tensors that fill them with random numbers.
_METHODS = frozenset(
    ["random_", "normal_", "uniform_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_"]
)
#: Classes whose objects draw, by module and name.
_DRAWING = frozenset(
    {
        ("random", "Random"),
        ("random", "SystemRandom"),
        ("numpy.random._generator", "Generator"),
        ("numpy.random.mtrand", "RandomState"),
        ("torch._C", "Generator"),
        ("torch", "Generator"),
    }
)


def kind_of_call(name: str) -> Kind | None:
    """What a call does that keeps its result from being kept; None for nothing known.

    Args:
        name: the full name, its module first: "numpy.random.rand".
    """
    while name:
        kind = _KINDS.get(name)
        if kind is not None:
            return kind
        name = name.rpartition(".")[0]
    return None


def draws(module: str, qualname: str) -> bool:
    """Whether objects of this class draw random numbers."""
    return (module, qualname) in _DRAWING


def is_random_method(name: str) -> bool:
    """Whether a method of that name draws, whatever it is a method of."""
    return name in _METHODS
