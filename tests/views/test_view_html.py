from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpuprof.records.reading import Estimate, Missing
from jupyter_gpuprof.records.run import Between, Device, Memory, Overhead, Remedy, Shares
from jupyter_gpuprof.views.format import percent
from jupyter_gpuprof.views.html import compare_html, history_html, run_html, run_page
from jupyter_gpuprof.views.parts import bar_widths, missing_parts
from jupyter_gpuprof.views.style import GROUNDS, PART_COLOURS, style_sheet
from jupyter_gpuprof.views.text import compare_text, history_text, run_text

HOSTILE = "<script>alert('x')</script> & \"q\" <img src=https://evil.example onerror=y>\x00"


def parse(html: str) -> ElementTree.Element:
    """The tree of a fragment or page, which is well-formed XML on top of HTML."""
    return ElementTree.fromstring(html.replace("<!DOCTYPE html>", ""))


def words(element: ElementTree.Element) -> str:
    """What a person reads, without the style."""
    for parent in list(element.iter()):
        for child in [child for child in parent if child.tag == "style"]:
            parent.remove(child)
    return re.sub(r"\s+", " ", " ".join(element.itertext()))


@pytest.fixture(scope="session")
def hostile(make_run):
    run = make_run()
    return make_run(
        run_id=HOSTILE,
        name=HOSTILE,
        started_at=HOSTILE,
        device=dataclasses.replace(run.device, name=HOSTILE, kind=HOSTILE),
        shares=dataclasses.replace(run.shares, copies=Missing(HOSTILE)),
        verdict=dataclasses.replace(
            run.verdict,
            sentence=HOSTILE,
            reasons=(HOSTILE,),
            also=(HOSTILE,),
            near=(HOSTILE,),
            doubts=(HOSTILE,),
        ),
        steps=dataclasses.replace(run.steps, mean_s=Missing(HOSTILE)),
        remedies=(Remedy(HOSTILE, HOSTILE, Missing(HOSTILE), HOSTILE),),
        overhead=Overhead(Missing(HOSTILE), Missing(HOSTILE)),
        memory=Memory(Missing(HOSTILE), Missing(HOSTILE)),
        loaders=(
            dataclasses.replace(run.loaders[0], name=HOSTILE, role=HOSTILE, batch_size=Missing(HOSTILE)),
        ),
        notes=(HOSTILE,),
        source=HOSTILE,
    )


@pytest.fixture(scope="session")
def paint():
    """Each of the four HTML painters, on one run."""
    return {
        "fragment": run_html,
        "page": run_page,
        "comparison": lambda run: compare_html(run, run),
        "history": lambda run: history_html([run, run]),
    }


PAINTERS = ["fragment", "page", "comparison", "history"]


@pytest.mark.parametrize("painter", PAINTERS)
def test_well_formed_and_self_contained(paint, painter, make_run):
    html = paint[painter](make_run())
    tree = parse(html)
    assert not {"script", "link", "iframe", "img", "object"} & {element.tag for element in tree.iter()}
    assert not re.search(r"https?://|//|@import|url\(|javascript:", html)
    assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]


@pytest.mark.parametrize("painter", PAINTERS)
def test_hostile_words_stay_words(paint, painter, hostile, make_run):
    html = paint[painter](hostile)
    tree, tame = parse(html), parse(paint[painter](make_run()))
    assert "<script" not in html
    assert "<img" not in html
    assert {element.tag for element in tree.iter()} <= {element.tag for element in tame.iter()}
    assert "<script>alert('x')</script> & \"q\"" in words(tree)


def test_the_report_says_it_all(make_run):
    run = make_run()
    read = words(parse(run_html(run)))
    for share in run.shares.present().values():
        assert percent(share) in read
    for name, reason in missing_parts(run):
        assert f"{name} n/a not measured: {reason}" in read
    for part in (
        "Input-bound strong evidence",
        "Also host-bound.",
        "12.1 ms mean step",
        "[58.1, 62.9]",
        "The share of device compute includes the host gap.",
        "12.1 ms → 4.8 ms (2.5x)",
        "not predicted Decodes once (not predicted: decoding was not sampled)",
        "Only 2.5 s were measured; profile 10 s or more.",
        "200 counted, 10 warm-up, 0 failed; 200 optimizer steps",
        "peak 1.2 GiB allocated, 1.6 GiB reserved (1 % of the device)",
        "45.0 µs per step, 0.4 % of the time of the steps",
        "Host-bound: 6.5 % of the limit of 20 %",
        "The kernel window was skipped",
        "train_loader training 210 64 1.53 s 1.52 s 0 n/a no no",
    ):
        assert part in read


@pytest.mark.parametrize("painter", PAINTERS)
def test_simulated_is_said(paint, painter, make_run):
    fake = make_run(device=Device("cuda", "Fake GPU", 1, Missing("none"), simulated=True))
    assert "simulated" in words(parse(paint[painter](fake))).lower()
    assert "simulated" not in words(parse(paint[painter](make_run()))).lower()


def test_what_is_not_there_has_no_heading(make_run):
    run = make_run()
    verdict = dataclasses.replace(run.verdict, reasons=(), also=(), near=(), doubts=())
    read = words(parse(run_html(make_run(verdict=verdict, remedies=(), loaders=(), notes=()))))
    for head in ("What to try", "Doubts", "Loaders", "Notes", "Near misses", "Also"):
        assert head not in read


def test_a_trace_of_a_part_is_not_zero(make_run):
    run = make_run()
    shares = dataclasses.replace(run.shares, copies=Estimate(0.0002, 0.0001, 0.0003))
    assert "copies <0.1 % [0.0, 0.0]" in words(parse(run_html(make_run(shares=shares))))


def test_the_picture_has_words_and_a_table(make_run):
    tree = parse(run_html(make_run()))
    bar = next(element for element in tree.iter() if element.get("role") == "img")
    assert bar.get("aria-label") == (
        "Parts of the time: device compute 33.1 %, input wait 60.4 %, epoch start 5.2 %, "
        "validation 0.0 %, checkpoint 0.0 %, other host work 1.3 %"
    )
    heads = list(tree.iter("th"))
    assert {head.get("scope") for head in heads} == {"row", "col"}
    assert "device compute" in [words(head).strip() for head in heads]


def test_a_notebook_gets_no_headings_or_ids_of_ours(make_run):
    tree = parse(run_html(make_run()))
    assert not [
        element.tag for element in tree.iter() if re.fullmatch(r"h\d", element.tag) or element.get("id")
    ]


def test_the_page_is_a_whole_document(make_run):
    page = run_page(make_run(name="a < b"))
    assert page.startswith("<!DOCTYPE html>\n<html lang='en'>")
    assert "<title>gpuprof: a &lt; b</title>" in page
    assert "name='viewport'" in page


def test_an_empty_history_says_so():
    assert "No runs yet." in words(parse(history_html([])))


def test_the_comparison_tells_the_change(make_run):
    run = make_run()
    after = make_run(name="after", steps=dataclasses.replace(run.steps, mean_s=0.00484))
    read = words(parse(compare_html(run, after)))
    assert "resnet18 on thumbnails → after 2.5x faster mean step" in read
    assert "input wait 60.4 % 60.4 % 0.0 points" in read


def test_every_rule_stays_under_our_class():
    sheet = re.sub(r"@media [^{]+\{|--[\w-]+:[^;]*;", "", style_sheet())
    selectors = [s.strip() for head in re.findall(r"([^{}]+)\{", sheet) for s in head.split(",")]
    assert selectors
    assert all(".jp-gpuprof-report" in selector for selector in selectors)
    assert style_sheet().count("{") == style_sheet().count("}")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_of_the_colours(theme):
    for key, (colour, ink) in PART_COLOURS[theme].items():
        assert contrast(colour, GROUNDS[theme]) >= 3, key
        assert contrast(colour, ink) >= 4.5, key


FLOATS = st.floats(allow_nan=True, allow_infinity=True)
UNKNOWN = st.builds(Missing, st.text(max_size=20))
SANE = st.one_of(UNKNOWN, st.floats(0, 1).map(lambda x: Estimate(x, x * 0.9, min(x * 1.1, 1.0))))
ABSURD = st.one_of(SANE, st.builds(Estimate, FLOATS, FLOATS, FLOATS))


def parts(share: st.SearchStrategy) -> st.SearchStrategy[Shares]:
    between = st.builds(Between, share, share, share, share)
    return st.builds(Shares, share, share, share, share, share, between)


NUMBERS = st.one_of(UNKNOWN, st.integers(0, 2**60), FLOATS)


@settings(deadline=None)
@given(
    shares=parts(ABSURD),
    mean=NUMBERS,
    size=NUMBERS,
    text=st.text(max_size=40),
    clock=st.sampled_from(["host", "device"]),
)
def test_any_run_can_be_shown(make_run, shares, mean, size, text, clock):
    run = make_run()
    run = make_run(
        name=text,
        clock=clock,
        shares=shares,
        steps=dataclasses.replace(run.steps, mean_s=mean, typical_s=mean),
        device=Device(text, text, 2, size, simulated=False),
        memory=Memory(size, size),
        overhead=Overhead(mean, mean),
        remedies=(Remedy("id", text, mean, text),),
        started_at=text,
    )
    parse(run_page(run))
    parse(compare_html(run, make_run()))
    parse(history_html([run]))
    assert run_text(run)
    assert compare_text(make_run(), run)
    assert history_text([run])


@settings(deadline=None)
@given(shares=parts(SANE), width=st.integers(-5, 200))
def test_no_line_is_wider_than_asked(make_run, shares, width):
    text = run_text(make_run(shares=shares, clock="host"), width)
    assert max(map(len, text.splitlines())) <= max(width, 48)


@settings(deadline=None)
@given(shares=parts(ABSURD))
def test_the_drawn_bar_is_full(make_run, shares):
    html = run_html(make_run(shares=shares))
    drawn = re.search(r"role='img'.*?</div>", html, re.DOTALL).group()
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", drawn)]
    assert not widths or sum(widths) == pytest.approx(100, abs=0.01)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=9))
def test_the_bar_is_full(values):
    widths = bar_widths(values)
    assert len(widths) == (len(values) if sum(values) > 0 else 0)
    assert not widths or sum(widths) == pytest.approx(100)
