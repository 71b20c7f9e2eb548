"""docs/openapi.yaml says what the routes do: names in both directions, and answers to generated requests."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jupyter_server.base.handlers import APIHandler

from jupyter_gpuprof.server.protocol import PROTOCOL_VERSION
from jupyter_gpuprof.server.routes import routes
from tests.server.realserver import Server, serving
from tests.server.scriptedmonitor import CONFIG, KERNEL, ORPHAN

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.yaml"
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


def test_every_reference_and_every_schema_is_used(document: dict[str, Any]) -> None:
    used = set(re.findall(r'"#/components/([\w/]+)"', DOCUMENT.read_text()))
    there = {f"{kind}/{name}" for kind, parts in document["components"].items() for name in parts}
    assert used == there - {"securitySchemes/token"}


def test_the_protocol_version_is_that_of_the_server(document: dict[str, Any]) -> None:
    assert document["components"]["schemas"]["Answer"]["properties"]["protocol"]["const"] == PROTOCOL_VERSION
    assert document["info"]["version"] == str(PROTOCOL_VERSION)


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
