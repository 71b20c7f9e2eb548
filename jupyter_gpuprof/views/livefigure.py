"""A Bokeh figure that is updated in place by plain display updates: no comm, no widget.

The figure is a display of its own (`figure_html`), drawn once. The report beside it is updated, and each
update carries the new numbers to every figure of the same key on the page (`push_html`): the scripts find
each other.

BokehJS (1.3 MB) must not stay in the saved notebook. It goes to the page once, with the first display of
the figure, which a moment later is replaced by the figure alone; the page keeps the library. Where it is
not there any more, such as after a reload, the figure draws nothing and the still picture of the report
stays. Where it is, the figure hides the still picture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_DRAW = """
(() => {
  const host = document.currentScript.parentElement, item = ITEM, page = window.jupyterGpuprof ??= {};
  const curve = page["KEY"] ??= {figures: [], latest: null};
  const bokeh = window.Bokeh && window.Bokeh["VERSION"];
  if (!bokeh) return;
  bokeh.embed.embed_item(item, host).then(views => {
    const model = [...views.roots][0].model;
    const show = latest => {
      for (const [name, columns] of Object.entries(latest))
        model.document.get_model_by_name("gpuprof " + name).data = columns;
    };
    curve.figures.push(show);
    if (curve.latest) show(curve.latest);
    const style = document.createElement("style");
    style.textContent = "[data-gpuprof-still='KEY'] { display: none; }";
    host.append(style);
  });
})();
"""
_PUSH = """
(() => {
  const curve = (window.jupyterGpuprof ??= {})["KEY"] ??= {figures: [], latest: null};
  curve.latest = SERIES;
  for (const show of curve.figures) show(curve.latest);
})();
"""


def figure_html(plot: Any, key: str, *, library: bool = False) -> str:
    """The figure as a fragment, which draws itself where the page has BokehJS.

    Args:
        plot: a Bokeh model, whose sources are named "gpuprof " and the name of their columns.
        key: a name that is safe in HTML, CSS and scripts.
        library: bring BokehJS along (1.3 MB): for the first display only, never for a saved notebook.
    """
    import bokeh
    from bokeh.embed import json_item
    from bokeh.resources import Resources

    version = bokeh.__version__
    script = _filled(_DRAW.replace("VERSION", version), key, ITEM=json_item(plot))
    if library:
        raw = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
        script = f"if (!window.Bokeh?.['{version}']) (function() {{ {raw}\n }}).call(window);\n{script}"
    return (
        "<div class='jp-gpuprof-figure' style='max-width:860px;background:#fff'>"
        f"<script>{script}</script></div>"
    )


def push_html(series: Mapping[str, Any], key: str) -> str:
    """Carries new columns, by name, to the figures of that key on the page."""
    return f"<script>{_filled(_PUSH, key, SERIES=series)}</script>"


def _filled(script: str, key: str, **values: object) -> str:
    """The script with values as JSON in place of their names; nothing in it can end the script."""
    filled = script.replace("KEY", key)
    for name, value in values.items():
        filled = filled.replace(name, json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))
    return filled
