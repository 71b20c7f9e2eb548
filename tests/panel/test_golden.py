"""The JSON that both sides test against is what the server answers, and what is told twice is the same."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from jupyter_gpuprof import __version__
from jupyter_gpuprof.records.devices import HolderState
from jupyter_gpuprof.records.idleness import Action, Activity
from jupyter_gpuprof.records.run import Label
from tests.panel.conftest import ROOT
from tests.panel.golden import FOLDER, answers, text_of

SOURCES = ROOT / "labextension"
TYPESCRIPT = {path.name: path.read_text() for path in (SOURCES / "src").rglob("*.ts*")}


@pytest.mark.parametrize(("name", "answer"), answers().items(), ids=answers().keys())
def test_the_golden_file_is_what_the_code_answers(name: str, answer: object) -> None:
    assert (FOLDER / f"{name}.json").read_text() == text_of(answer), "python -m tests.panel.golden"


def test_both_halves_have_one_version() -> None:
    assert json.loads((SOURCES / "package.json").read_text())["version"] == __version__


@pytest.mark.parametrize("words", [*get_args(Activity), *(s for s in get_args(HolderState) if s != "orphan")])
def test_every_state_has_words_in_the_panel(words: str) -> None:
    table = TYPESCRIPT["words.ts"].partition("function stateWords")[2].partition("return")[0]
    assert re.search(rf"^\s+'?{words}'?: trans", table, re.M)


@pytest.mark.parametrize("words", [a for a in get_args(Action) if a != "none"])
def test_every_action_has_words_in_the_panel(words: str) -> None:
    table = TYPESCRIPT["words.ts"].partition("function actionWords")[2].partition("return")[0]
    assert re.search(rf"^\s+'?{words}'?: trans", table, re.M)


@pytest.mark.parametrize("label", get_args(Label))
def test_every_label_has_words_in_the_panel(label: str) -> None:
    assert re.search(rf"^\s+'?{label}'?: trans", TYPESCRIPT["parts.ts"], re.M)


def test_the_colours_are_those_of_the_theme() -> None:
    sheet = (SOURCES / "style" / "base.css").read_text()
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)|rgba?\(|hsla?\(", sheet)
    used = set(re.findall(r"var\((--[\w-]+)", sheet))
    assert all(name.startswith("--jp-") for name in used)
    assert not [name for name, text in TYPESCRIPT.items() if re.search(r"#[0-9a-fA-F]{6}\b", text)]


def test_every_word_on_the_page_can_be_translated() -> None:
    bare = r">\s*([A-Za-z][\w .,:’]*?)\s*<|(?:title|aria-label|label)=[\"']([^\"']+)[\"']"
    code = {"c.GpuProfReaper", "jupyter_server_config.py"}
    for name, text in TYPESCRIPT.items():
        if name.endswith(".tsx"):
            body = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
            found = {a or b for a, b in re.findall(bare, body)}
            assert found <= code, name


def test_the_panel_asks_at_most_once_a_second() -> None:
    schema = json.loads((SOURCES / "schema" / "plugin.json").read_text())
    assert schema["properties"]["refreshSeconds"]["minimum"] == 1


def test_no_host_name_of_a_registry_is_in_the_lock() -> None:
    assert "://" not in (SOURCES / "yarn.lock").read_text()
    assert "http" not in (SOURCES / ".yarnrc.yml").read_text()


def test_the_style_of_the_panel_does_not_reach_into_reports() -> None:
    sheet = (SOURCES / "style" / "base.css").read_text()
    assert set(re.findall(r"\.(jp-[\w-]+?)-", sheet)) == {"jp-gpupanel"}
    assert not [
        p for p in (ROOT / "jupyter_gpuprof" / "views").glob("*.py") if "jp-gpupanel" in p.read_text()
    ]
