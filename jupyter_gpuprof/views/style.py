"""The looks of the HTML: one style sheet under one class, and the colours of the parts.

JupyterLab names its theme on ``<body data-jp-theme-light>``, so its theme wins over the system's.
The colours keep a contrast of 3 to 1 to the ground and 4.5 to 1 to their ink, and any two of them can
be told apart with the common kinds of colour blindness; tests check the contrasts.
"""

from __future__ import annotations

ROOT_CLASS = "jp-gpuprof-report"

_WHITE, _BLACK = "#ffffff", "#101418"

#: The grounds on which the colours stand, where JupyterLab does not give its own.
GROUNDS = {"light": "#ffffff", "dark": "#15181d"}

#: For each part its colour and the ink on it, in the light and in the dark theme.
PART_COLOURS: dict[str, dict[str, tuple[str, str]]] = {
    "light": {
        "device_compute": ("#2b87d3", _BLACK),
        "exposed_communication": ("#652a84", _WHITE),
        "exposed_input": ("#d9760c", _BLACK),
        "copies": ("#007a5c", _WHITE),
        "host_gap": ("#a78f4c", _BLACK),
        "between.epoch_start": ("#7d2412", _WHITE),
        "between.validation": ("#536176", _WHITE),
        "between.checkpoint": ("#33363d", _WHITE),
        "between.other": ("#8a959e", _BLACK),
    },
    "dark": {
        "device_compute": ("#3385d6", _BLACK),
        "exposed_communication": ("#dba9f8", _BLACK),
        "exposed_input": ("#ee8f2f", _BLACK),
        "copies": ("#66dfb6", _BLACK),
        "host_gap": ("#e8e27a", _BLACK),
        "between.epoch_start": ("#bf6c52", _BLACK),
        "between.validation": ("#666e76", _WHITE),
        "between.checkpoint": ("#d3e2f3", _BLACK),
        "between.other": ("#98a8b8", _BLACK),
    },
}

#: The part whose colour stands for a kind of gpu op, or for a lane of a timeline.
KIND_PARTS = {
    "loader": "exposed_input",
    "host": "between.other",
    "compute": "device_compute",
    "communication": "exposed_communication",
    "copies": "copies",
}

# A word that does not fit into its segment of the bar wraps below it, out of sight: never half a number.
# `&` stands for the root. It is doubled to win over the rules of JupyterLab's rendered HTML.
_SHEET = """
& {
  VARIABLES
  box-sizing: border-box; max-width: 860px; margin: 4px 0; padding: 20px 24px;
  border: 1px solid var(--gp-line); border-radius: 8px;
  background: var(--gp-ground); color: var(--gp-ink);
  font: 400 14px/1.5 var(--jp-ui-font-family, system-ui, -apple-system,
     "Segoe UI", Helvetica, Arial, sans-serif);
  font-variant-numeric: tabular-nums; text-align: left; overflow-wrap: anywhere;
}
& *, & *::before { box-sizing: border-box; }
& p, & ol, & ul, & dl, & dd, & table, & figure { margin: 0; padding: 0; font-size: inherit; }
& .jp-gpuprof-top { display: flex; flex-wrap: wrap; gap: 0 16px; justify-content: space-between;
  color: var(--gp-soft); font-size: 12.5px; }
& .jp-gpuprof-name { color: var(--gp-ink); font-weight: 600; }
& .jp-gpuprof-simulated { margin: 10px 0 0; padding: 6px 10px; border: 1px dashed currentColor;
  border-radius: 4px; font-size: 13px; }
& .jp-gpuprof-verdict { display: flex; flex-wrap: wrap; gap: 8px 32px; justify-content: space-between;
  align-items: flex-start; margin: 14px 0 0; padding: 0 0 0 14px;
  border-left: 4px solid var(--gp-accent, var(--gp-line)); }
& .jp-gpuprof-why { flex: 1 1 380px; }
& .jp-gpuprof-label { font-size: 24px; font-weight: 600; line-height: 1.2; letter-spacing: -0.01em; }
& .jp-gpuprof-label span { color: var(--gp-soft); font-size: 13px; font-weight: 400;
  letter-spacing: 0; white-space: nowrap; }
& .jp-gpuprof-sentence { margin: 6px 0 0; max-width: 66ch; text-wrap: pretty; }
& .jp-gpuprof-figure { flex: 0 0 auto; text-align: right; line-height: 1.2; }
& .jp-gpuprof-figure b { display: block; font-size: 24px; font-weight: 600; letter-spacing: -0.01em; }
& .jp-gpuprof-figure span, & .jp-gpuprof-soft { color: var(--gp-soft); font-size: 13px; }
& .jp-gpuprof-head { margin: 24px 0 8px; color: var(--gp-ink); font-size: 14px; font-weight: 600;
  line-height: 1.4; }
& .jp-gpuprof-verdict + .jp-gpuprof-list { margin-top: 12px; }
& .jp-gpuprof-list { margin: 6px 0 0; padding-left: 18px; list-style: disc; }
& .jp-gpuprof-list li { margin: 2px 0; padding: 0; }
& .jp-gpuprof-bar { display: flex; height: 30px; margin: 0; overflow: hidden; border-radius: 4px;
  background: var(--gp-raised); print-color-adjust: exact; -webkit-print-color-adjust: exact; }
& .jp-gpuprof-bar > span { display: flex; flex: none; flex-wrap: wrap; height: 30px; overflow: hidden;
  box-shadow: inset -1px 0 0 var(--gp-ground); font-size: 12px; line-height: 30px;
  forced-color-adjust: none; }
& .jp-gpuprof-bar > span::before { content: ""; width: 0; height: 30px; }
& .jp-gpuprof-bar > span > span { flex: none; padding: 0 0 0 8px; white-space: nowrap; }
& .jp-gpuprof-bar > span > span + span { padding: 0 4px 0 5px; }
& .jp-gpuprof-bar > span:last-child, & .jp-gpuprof-bar > .jp-gpuprof-thin { box-shadow: none; }
& .jp-gpuprof-wide { max-width: 100%; overflow-x: auto; }
& table { width: 100%; border: 0; border-collapse: collapse; table-layout: auto; color: inherit; }
& tr, & tbody tr:nth-child(odd), & tbody tr:nth-child(even), & tbody tr:hover { background: none; border: 0; }
& th, & td { padding: 4px 20px 4px 0; border: 0; font-size: 13px; font-weight: 400; line-height: 1.5;
  text-align: left; vertical-align: baseline; white-space: nowrap; max-width: none; }
& thead th { border-bottom: 1px solid var(--gp-line); color: var(--gp-soft); font-size: 12px; }
& tbody th { color: var(--gp-ink); }
& th:last-child, & td:last-child { padding-right: 0; }
& .jp-gpuprof-num { text-align: right; }
& .jp-gpuprof-text { white-space: normal; overflow-wrap: break-word; }
& .jp-gpuprof-parts { margin-top: 10px; }
& .jp-gpuprof-parts .jp-gpuprof-range { width: 60%; }
& .jp-gpuprof-note { margin-top: 8px; }
& .jp-gpuprof-zero > *, & .jp-gpuprof-unknown > * { color: var(--gp-soft); }
& .jp-gpuprof-unknown td { white-space: normal; }
& .jp-gpuprof-key { display: inline-block; width: 10px; height: 10px; margin: 0 10px 0 0; border-radius: 2px;
  forced-color-adjust: none; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
& .jp-gpuprof-unknown .jp-gpuprof-key { border: 1px dashed var(--gp-soft); }
& .jp-gpuprof-track { display: block; position: relative; height: 12px; margin: 0 6px; border-bottom: 0;
  background: linear-gradient(var(--gp-line), var(--gp-line)) 0 50% / 100% 1px no-repeat; }
& .jp-gpuprof-track i { position: absolute; top: 4px; height: 4px; min-width: 4px; border-radius: 2px;
  opacity: .55; }
& .jp-gpuprof-track b { position: absolute; top: 1px; width: 10px; height: 10px; margin-left: -5px;
  border: 2px solid var(--gp-ground); border-radius: 50%; }
& .jp-gpuprof-remedies { padding: 0; list-style: none; counter-reset: gp; }
& .jp-gpuprof-remedies > li { display: grid; grid-template-columns: 24px 1fr auto; gap: 0 4px; margin: 0;
  padding: 8px 0; border-top: 1px solid var(--gp-line); counter-increment: gp; }
& .jp-gpuprof-remedies > li::before { content: counter(gp) "."; color: var(--gp-soft); }
& .jp-gpuprof-remedies b { font-weight: 600; }
& .jp-gpuprof-try { padding: 2px 6px; border-radius: 3px; background: var(--gp-raised); user-select: all; }
& .jp-gpuprof-gain { padding-left: 16px; text-align: right; white-space: nowrap; }
& .jp-gpuprof-remedies p { grid-column: 2 / -1; max-width: 76ch; text-wrap: pretty; }
& details { margin: 20px 0 0; padding: 10px 0 0; border-top: 1px solid var(--gp-line); }
& summary { display: list-item; color: var(--gp-soft); font-size: 13px; cursor: pointer; }
& summary:focus-visible { outline: 2px solid var(--gp-link); outline-offset: 2px; }
& dl { display: grid; grid-template-columns: minmax(80px, max-content) 1fr; gap: 4px 24px; margin: 12px 0 0;
  font-size: 13px; }
& dt { float: none; width: auto; margin: 0; padding: 0; color: var(--gp-soft); font-weight: 400; }
& dd { float: none; width: auto; margin: 0; padding: 0; }
& code { white-space: nowrap; padding: 0; background: none; color: inherit;
  font: 12px var(--jp-code-font-family, ui-monospace, Menlo, Consolas, monospace); }
& .jp-gpuprof-lines { margin-top: 10px; }
& .jp-gpuprof-lines code { white-space: normal; overflow-wrap: anywhere; }
& .jp-gpuprof-levers td, & .jp-gpuprof-levers th { vertical-align: top; }
& .jp-gpuprof-figures { display: flex; flex-wrap: wrap; gap: 8px 36px; margin: 8px 0 12px; }
& .jp-gpuprof-figures b { display: block; font-size: 18px; font-weight: 600; line-height: 1.3; }
& .jp-gpuprof-figures p > span { color: var(--gp-soft); font-size: 12px; }
& .jp-gpuprof-ops table { min-width: 520px; }
& .jp-gpuprof-ops tbody th { width: 99%; max-width: 0; overflow: hidden; text-overflow: ellipsis; }
& .jp-gpuprof-ranks th, & .jp-gpuprof-ranks td { padding-right: 16px; }
& .jp-gpuprof-ranks th:last-child, & .jp-gpuprof-ranks td:last-child { padding-right: 0; }
& .jp-gpuprof-ranks thead th { white-space: normal; overflow-wrap: normal; vertical-align: bottom;
  line-height: 1.3; }
& .jp-gpuprof-ranks, & .jp-gpuprof-ops { margin-top: 10px; }
& .jp-gpuprof-mark { margin-left: 6px; padding: 1px 6px; border-radius: 3px; font-size: 12px;
  forced-color-adjust: none; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
& .jp-gpuprof-timeline { display: block; width: 100%; min-width: 640px; height: auto; margin: 12px 0 0; }
& .jp-gpuprof-timeline text { fill: var(--gp-soft); font-size: 12px; }
& .jp-gpuprof-timeline .jp-gpuprof-name { fill: var(--gp-ink); font-size: 13px; }
& .jp-gpuprof-timeline .jp-gpuprof-lane { fill: var(--gp-raised); }
& .jp-gpuprof-timeline .jp-gpuprof-grid { stroke: var(--gp-line); }
& .jp-gpuprof-timeline g { forced-color-adjust: none; }
& .jp-gpuprof-pair-top { display: flex; flex-wrap: wrap; gap: 4px 32px; justify-content: space-between; }
& .jp-gpuprof-pair { display: grid; grid-template-columns: max-content 1fr; gap: 6px 12px;
  align-items: center;   margin: 12px 0 16px; font-size: 13px; }
& .jp-gpuprof-below { margin-top: 12px; }
& .jp-gpuprof-narrow table { width: auto; }
& .jp-gpuprof-code { margin: 0; padding: 8px 12px; overflow-x: auto; border: 0; border-radius: 4px;
  background: var(--gp-raised); color: inherit; line-height: 1.5; }
& .jp-gpuprof-code code { white-space: pre; }
& .jp-gpuprof-chart { display: block; width: 100%; min-width: 480px; height: auto; margin: 12px 0 0; }
& .jp-gpuprof-chart text { fill: var(--gp-soft); font-size: 12px; }
& .jp-gpuprof-chart .jp-gpuprof-name { fill: var(--gp-ink); font-size: 13px; }
& .jp-gpuprof-chart .jp-gpuprof-grid { stroke: var(--gp-line); }
& .jp-gpuprof-chart .jp-gpuprof-rate { color: var(--gp-device-compute); }
& .jp-gpuprof-chart .jp-gpuprof-peak { color: var(--gp-ink); }
& .jp-gpuprof-chart g { forced-color-adjust: none; }
@media (max-width: 560px) {
  & { padding: 16px; }
  & .jp-gpuprof-figure { text-align: left; }
  & .jp-gpuprof-remedies > li { grid-template-columns: 24px 1fr; }
  & .jp-gpuprof-gain { grid-column: 2; padding: 0; text-align: left; white-space: normal; }
  & .jp-gpuprof-parts .jp-gpuprof-range { display: none; }
}
"""

_LIGHT_VARIABLES = """
--gp-ground: var(--jp-layout-color0, #fff); --gp-raised: var(--jp-layout-color2, #f1f3f5);
--gp-ink: var(--jp-content-font-color1, #1c2126); --gp-soft: var(--jp-content-font-color2, #59626c);
--gp-line: var(--jp-border-color2, #dde1e6); --gp-link: var(--jp-content-link-color, #1f5fa8);
color-scheme: light;
"""

_DARK_VARIABLES = """
--gp-ground: var(--jp-layout-color0, #15181d); --gp-raised: var(--jp-layout-color2, #23282f);
--gp-ink: var(--jp-content-font-color1, #e4e8ec); --gp-soft: var(--jp-content-font-color2, #9aa5b1);
--gp-line: var(--jp-border-color2, #30363e); --gp-link: var(--jp-content-link-color, #7db8f5);
color-scheme: dark;
"""


def part_class(key: str) -> str:
    """The class that carries the colour of the part."""
    return f"jp-gpuprof-{_slug(key)}"


def style_sheet() -> str:
    """The whole style sheet, every rule under `ROOT_CLASS`."""
    root = f".{ROOT_CLASS}.{ROOT_CLASS}"
    light, dark = _colours("light"), _colours("dark") + _DARK_VARIABLES
    sheet = [
        _SHEET.replace("&", root).replace("VARIABLES", _LIGHT_VARIABLES),
        *(_part_rules(root, key) for key in PART_COLOURS["light"]),
        f"{root} {{ {light} }}",
        f"@media (prefers-color-scheme: dark) {{ {root} {{ {dark} }} }}",
        f"[data-jp-theme-light='true'] {root} {{ {light} {_LIGHT_VARIABLES} }}",
        f"[data-jp-theme-light='false'] {root} {{ {dark} }}",
        f"@media print {{ {root} {{ break-inside: avoid; }} }}",
    ]
    return " ".join(" ".join(sheet).split())


def page_sheet() -> str:
    """The style of a page of its own around the report."""
    return (
        ":root { color-scheme: light dark; } body { margin: 0; padding: 24px 16px; background: #f5f6f8; } "
        f"body main .{ROOT_CLASS}.{ROOT_CLASS} {{ margin: 0 auto; }} "
        "@media (prefers-color-scheme: dark) { body { background: #0d0f12; } } "
        "@media print { body { padding: 0; background: none; } }"
    )


def _part_rules(root: str, key: str) -> str:
    name, colour, ink = part_class(key), f"var(--gp-{_slug(key)})", f"var(--gp-{_slug(key)}-ink)"
    return (
        f"{root} .{name} {{ background: {colour}; color: {ink}; fill: {colour}; }} "
        f"{root} .{name}.jp-gpuprof-verdict {{ background: none; color: inherit; --gp-accent: {colour}; }}"
    )


def _colours(theme: str) -> str:
    return " ".join(
        f"--gp-{_slug(key)}: {colour}; --gp-{_slug(key)}-ink: {ink};"
        for key, (colour, ink) in PART_COLOURS[theme].items()
    )


def _slug(key: str) -> str:
    return key.rpartition(".")[2].replace("_", "-")
