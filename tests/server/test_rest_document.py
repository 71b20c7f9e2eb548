"""docs/openapi.yaml says what the routes do: names in both directions, and answers to generated requests."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jupyter_server.base.handlers import APIHandler
from traitlets.config import Configurable

from jupyter_gpuprof.server import handlers
from jupyter_gpuprof.server.config import GpuProf, GpuProfReaper
from jupyter_gpuprof.server.prometheus import exposition
from jupyter_gpuprof.server.protocol import PROTOCOL_VERSION
from jupyter_gpuprof.server.routes import routes
from tests.server.realserver import Server, serving
from tests.server.scriptedmonitor import CONFIG, KERNEL, ORPHAN, ScriptedMonitor

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT, PAGE = DOCS / "openapi.yaml", DOCS / "server.md"
#: Ids that exist, so that not all generated requests end at "not found".
KNOWN = {"holder_id": KERNEL, "orphan_id": ORPHAN, "run_id": "last"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return yaml.safe_load(DOCUMENT.read_text())


def test_every_route_is_described_and_every_description_is_a_route(document: dict[str, Any]) -> None:
    def plain(path: str) -> str:
        return re.sub(r"\(\[\^/\]\+\)|\{\w+\}", "{}", path)

    described = {(plain(p), method) for p, methods in document["paths"].items() for method in methods}
    there = {
        (plain(path), method)
        for path, handler, *_ in routes("/")
        for method in ("get", "head", "post", "put", "patch", "delete")
        if getattr(handler, method) is not getattr(APIHandler, method)
    }
    assert described == there


def test_reads_are_get_and_writes_are_post(document: dict[str, Any]) -> None:
    for _, handler, *_ in routes("/"):
        assert handler._track_activity == (handler.post is not APIHandler.post)


def test_every_method_names_its_action_and_resource() -> None:
    """Without arguments ``@authorized`` keeps those of the first call."""
    text = Path(handlers.__file__).read_text()
    explicit = re.findall(r'@authorized\(action="(?:read|write)", resource=RESOURCE\)\n    async def', text)
    assert (
        len(explicit)
        == text.count("@web.authenticated\n")
        == len(re.findall(r"async def (?:get|post)", text))
    )
    assert len(explicit) == len(re.findall(r"\bauthorized\b", text)) - 2  # its import and the module's text


def test_every_reference_and_every_schema_is_used(document: dict[str, Any]) -> None:
    used = set(re.findall(r'"#/components/([\w/]+)"', DOCUMENT.read_text()))
    there = {f"{kind}/{name}" for kind, parts in document["components"].items() for name in parts}
    assert used == there - {"securitySchemes/token"}


def test_the_protocol_version_is_that_of_the_server(document: dict[str, Any]) -> None:
    assert document["components"]["schemas"]["Answer"]["properties"]["protocol"]["const"] == PROTOCOL_VERSION
    assert document["info"]["version"] == str(PROTOCOL_VERSION)


# docs/server.md ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [GpuProf, GpuProfReaper])
def test_every_option_is_described_with_its_default(kind: type[Configurable]) -> None:
    section = (
        PAGE.read_text().partition(f"### `{kind.__name__}`")[2].partition("\n## ")[0].partition("\n### ")[0]
    )
    described = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))
    options = kind.class_traits(config=True)
    assert described.keys() == options.keys()
    for name, trait in options.items():
        assert ast.literal_eval(described[name].strip("`")) == trait.default(), name


def test_every_route_metric_and_error_is_described(document: dict[str, Any]) -> None:
    page = PAGE.read_text()
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path.lstrip('/')}`" in page, path
    for metric in re.findall(r"# TYPE (\w+) ", exposition(ScriptedMonitor())):
        assert f"`{metric}" in page, metric
    codes = document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"]
    for code in set(codes) - {"refused"}:  # what no route of ours says
        assert f"`{code}`" in page, code


# Generated requests --------------------------------------------------------------------------------

if importlib.util.find_spec("schemathesis"):
    import schemathesis
    from hypothesis import HealthCheck, settings
    from schemathesis.specs.openapi.checks import negative_data_rejection

    # Without what it says of login: schemathesis wants a 401 where Jupyter says 403; test_rest.py tries that.
    schema = schemathesis.openapi.from_dict({**yaml.safe_load(DOCUMENT.read_text()), "security": []})
    # Unknown parameters are passed over: Jupyter has some of its own (token, no_track_activity).
    schema.config.generation.update(allow_extra_parameters=False)

    @pytest.fixture(scope="module")
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        folder = tmp_path_factory.mktemp("document")
        with serving(
            folder, CONFIG, base_url="/user/x/", env={"JUPYTER_GPUPROF_DATABASE": str(folder / "ledger.db")}
        ) as running:
            yield running

    @pytest.mark.slow
    @schema.parametrize()
    @settings(
        max_examples=20, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def test_answers_are_as_described(case: schemathesis.Case, server: Server) -> None:
        """Right and wrong input; the checks are those of schemathesis: statuses, types, schemas, methods."""
        headers = {"Authorization": f"token {server.token}"}
        case.call_and_validate(base_url=server.url, headers=headers)
        parts = case.path_parameters or {}
        if parts:
            case.path_parameters = {name: KNOWN[name] for name in parts}
            case.call_and_validate(
                base_url=server.url, headers=headers, excluded_checks=[negative_data_rejection]
            )
else:

    @pytest.mark.skip(reason="schemathesis is not installed (pip install schemathesis)")
    def test_answers_are_as_described() -> None: ...
