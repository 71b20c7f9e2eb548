"""The catalogue against printed names, and smaller devices against arithmetic by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_gpuprof.errors import OptionError
from jupyter_gpuprof.planning.catalogue import Prices, catalogue, find, prices, smaller_devices
from jupyter_gpuprof.records.reading import Missing
from jupyter_gpuprof.records.run import Device

GIB = 2**30
#: Names as they are printed, by the entry that they mean.
NAMES = {
    "T4": ["Tesla T4", "NVIDIA T4"],
    "V100-16GB": ["Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB", "Tesla V100-FHHL-16GB"],
    "V100-32GB": ["Tesla V100-SXM2-32GB", "Tesla V100-PCIE-32GB", "Tesla V100S-PCIE-32GB"],
    "A10": ["NVIDIA A10"],
    "A10G": ["NVIDIA A10G"],
    "A30": ["NVIDIA A30"],
    "A30 MIG 1g.6gb": ["NVIDIA A30 MIG 1g.6gb"],
    "A30 MIG 2g.12gb": ["NVIDIA A30 MIG 2g.12gb"],
    "A40": ["NVIDIA A40"],
    "A100-40GB": ["NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"],
    "A100-40GB MIG 1g.5gb": ["NVIDIA A100-SXM4-40GB MIG 1g.5gb"],
    "A100-40GB MIG 3g.20gb": ["NVIDIA A100-PCIE-40GB MIG 3g.20gb"],
    "A100-80GB": ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM-80GB"],
    "A100-80GB MIG 1g.10gb": ["NVIDIA A100 80GB PCIe MIG 1g.10gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"],
    "L4": ["NVIDIA L4"],
    "L40": ["NVIDIA L40"],
    "L40S": ["NVIDIA L40S"],
    "RTX 3090": ["NVIDIA GeForce RTX 3090", "GeForce RTX 3090"],
    "RTX 4090": ["NVIDIA GeForce RTX 4090"],
    "RTX 5090": ["NVIDIA GeForce RTX 5090"],
    "RTX A6000": ["NVIDIA RTX A6000", "RTX A6000"],
    "RTX 6000 Ada": ["NVIDIA RTX 6000 Ada Generation"],
    "H100-PCIe": ["NVIDIA H100 PCIe"],
    "H100-SXM": ["NVIDIA H100 80GB HBM3"],
    "H100-SXM MIG 1g.10gb": ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"],
    "H100-NVL": ["NVIDIA H100 NVL"],
    "H200": ["NVIDIA H200", "NVIDIA H200 NVL"],
    "H200 MIG 1g.18gb": ["NVIDIA H200 MIG 1g.18gb"],
    "GH200": ["NVIDIA GH200 480GB"],
    "B200": ["NVIDIA B200"],
    "MI210": ["AMD Instinct MI210"],
    "MI250X": ["AMD Instinct MI250X", "AMD Instinct MI250X / MI250", "AMD Instinct MI250X/MI250"],
    "MI300X": ["AMD Instinct MI300X", "AMD Instinct MI300X VF"],
}
#: Devices that are not in the catalogue, however alike their names are.
OTHERS = [
    "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA A10-24Q",
    "NVIDIA A100X",
    "NVIDIA L40G",
    "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb",
    "NVIDIA H100 80GB HBM3 MIG 1g.100gb",
    "NVIDIA T400",
    "Quadro RTX 6000",
    "AMD Instinct MI250",
    "Simulated device",
    "cpu",
    "",
]
H100 = Device("cuda", "NVIDIA H100 80GB HBM3", 1, 85_029_158_912, False)  # 79.19 GiB


@pytest.mark.parametrize(
    ("entry", "name"), [(entry, name) for entry, names in NAMES.items() for name in names]
)
def test_a_printed_name_means_one_entry_and_only_that(entry: str, name: str) -> None:
    found = find(name)
    assert found is not None
    assert found.name == entry
    matching = [d.name for d in catalogue() if any(re.fullmatch(p, name, re.I) for p in d.patterns)]
    assert matching == [entry]


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_mean_nothing(name: str) -> None:
    assert find(name) is None


def test_every_whole_device_is_known_by_a_printed_name() -> None:
    assert {d.name for d in catalogue() if d.kind == "device"} <= set(NAMES)


def test_names_are_unique_and_a_slice_is_less_than_its_device() -> None:
    by_name = {d.name: d for d in catalogue()}
    assert len(by_name) == len(catalogue())
    for device in catalogue():
        assert device.price_per_hour is None  # prices are the person's
        if device.kind == "device":
            assert device.parent is None
            continue
        assert device.parent is not None
        parent = by_name[device.parent]
        assert device.memory_bytes < 0.7 * parent.memory_bytes
        if not isinstance(device.multiprocessors, Missing):
            assert not isinstance(parent.multiprocessors, Missing)
            assert device.multiprocessors < parent.multiprocessors
        # The name tells the memory that is bought, of which a little is kept back.
        (bought_gb,) = re.findall(r"\.(\d+)gb", device.name)
        assert 0.85 * float(bought_gb) < device.memory_bytes / GIB < float(bought_gb)


def test_six_gib_on_an_h100_fit_a_slice_and_small_devices() -> None:
    found = smaller_devices(6 * GIB, H100)
    names = [device.name for device in found]
    assert names[0] == "H100-SXM MIG 1g.10gb"
    assert [d.of_this_device for d in found] == sorted((d.of_this_device for d in found), reverse=True)
    assert {"T4", "L4", "A10", "A100-40GB MIG 1g.10gb"} <= set(names)
    assert not {"A100-40GB MIG 1g.5gb", "A30 MIG 1g.6gb"} & set(names)  # 7.2 GiB do not fit
    assert not {"H100-PCIe", "A100-80GB", "H100-SXM"} & set(names)  # no smaller than what there is
    others = [d.memory_bytes for d in found if not d.of_this_device]
    assert others == sorted(others)
    assert all(d.memory_bytes >= 7.2 * GIB for d in found)
    assert all(isinstance(d.saving_per_hour, Missing) for d in found)


def test_a_slice_has_its_siblings_for_smaller_devices() -> None:
    here = Device("cuda", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 1, int(39.25 * GIB), False)
    first = smaller_devices(5 * GIB, here)[0]
    assert (first.name, first.of_this_device) == ("A100-80GB MIG 1g.10gb", True)


def test_a_full_device_and_an_unknown_capacity_have_no_smaller_one() -> None:
    assert smaller_devices(75 * GIB, H100) == ()
    assert smaller_devices(GIB, Device("cpu", "CPU", 4, Missing("host"), False)) == ()


def test_an_unknown_device_is_compared_by_its_memory() -> None:
    here = Device("xpu", "Something new", 1, 40 * GIB, False)
    found = smaller_devices(20 * GIB, here)
    assert [d.name for d in found if d.kind == "device"] == ["RTX 5090", "V100-32GB"]
    assert not any(d.of_this_device for d in found)


def test_savings_need_both_prices() -> None:
    priced = Prices({"H100-SXM": 2.5, "L4": 0.6}, "2026-01-31")
    found = {d.name: d for d in smaller_devices(6 * GIB, H100, priced)}
    assert found["L4"].saving_per_hour == pytest.approx(1.9)
    assert found["L4"].priced == "2026-01-31"
    assert isinstance(found["A10"].saving_per_hour, Missing)
    only_theirs = smaller_devices(6 * GIB, H100, Prices({"L4": 0.6}))
    assert all(isinstance(d.saving_per_hour, Missing) for d in only_theirs)


@pytest.fixture(autouse=True)
def no_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTER_GPUPROF_PRICES", raising=False)
    monkeypatch.delenv("JUPYTER_GPUPROF_PRICES_FILE", raising=False)


def test_without_prices_there_are_none() -> None:
    assert prices() == Prices({}, "")


def test_prices_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "A100-80GB=1.80, h100=2.50, A100-80GB MIG 1g.10gb=0.3, Tesla T4=0.35, date=2026-01-31,"
    monkeypatch.setenv("JUPYTER_GPUPROF_PRICES", text)
    expected = {"A100-80GB": 1.8, "A100-80GB MIG 1g.10gb": 0.3, "T4": 0.35}
    family = dict.fromkeys(("H100-PCIe", "H100-SXM", "H100-NVL"), 2.5)  # but not their slices
    assert prices() == Prices({**expected, **family}, "2026-01-31")


@pytest.mark.parametrize(
    "text",
    [
        '{"date": "2026-01-31", "prices": {"A100-80GB": 1.8, "L4": 0.6}}',
        "# what we pay\ndate=2026-01-31\nA100-80GB = 1.80\n\nL4=0.60  # since spring\n",
    ],
)
def test_prices_of_a_file_and_the_environment_before_them(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prices"
    file.write_text(text)
    monkeypatch.setenv("JUPYTER_GPUPROF_PRICES_FILE", str(file))
    assert prices() == Prices({"A100-80GB": 1.8, "L4": 0.6}, "2026-01-31")
    monkeypatch.setenv("JUPYTER_GPUPROF_PRICES", "L4=0.5")
    assert prices() == Prices({"A100-80GB": 1.8, "L4": 0.5}, "2026-01-31")


@pytest.mark.parametrize(
    "text",
    ["A100-80GB=cheap", "A100-80GB", "L4=-1", "L4=0", "L4=nan", "L4=inf", "L4=", "Z9=1", "=1", "H10=1"],
)
def test_bad_prices_are_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPUPROF_PRICES", text)
    with pytest.raises(OptionError, match="JUPYTER_GPUPROF_PRICES has ") as error:
        prices()
    assert error.value.hint


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"{", b'{"prices": 3}', b'{"date": "today"}'])
def test_a_file_that_cannot_be_read_is_named(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prices.json"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("JUPYTER_GPUPROF_PRICES_FILE", str(file))
    with pytest.raises(OptionError, match="JUPYTER_GPUPROF_PRICES_FILE cannot be read"):
        prices()


def test_prices_that_are_given_go_before_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPUPROF_PRICES", "T4=0.4,L4=0.8")
    assert prices("T4=0.5").per_hour == {"T4": 0.5, "L4": 0.8}
    with pytest.raises(OptionError, match="Foo"):
        prices("Foo=1")
