"""The figures' looks on light and on dark ground, in colours that colour-blind people tell apart (Okabe and Ito)."""

from typing import Any

Theme = dict[str, Any]


def _theme(text: str, faint: str, colours: list[str]) -> Theme:
    return {
        "background": None,
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif",
        "view": {"stroke": None},
        "title": {"color": text, "subtitleColor": text},
        "axis": {"labelColor": text, "titleColor": text, "titleFontWeight": "normal", "labelFontSize": 12}
        | {"titleFontSize": 12, "gridColor": faint, "domainColor": faint, "tickColor": faint, "labelLimit": 150},
        "axisOrdinal": {"grid": False},
        "axisX": {"grid": False},
        "legend": {"orient": "bottom", "labelColor": text, "titleColor": text, "labelFontSize": 12, "titleFontSize": 12}
        | {
            "titleFontWeight": "normal",
            "labelLimit": 220,
            "gradientLength": 160,
            "gradientThickness": 10,
            "symbolSize": 70,
            "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
        },
        "line": {"strokeWidth": 2},
        "range": {"category": colours},
    }


LIGHT = _theme(
    "#20262e", "#d9dee4", ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333", "#8A8A8A"]
)
DARK = _theme(
    "#e4e8ed", "#3a434e", ["#56B4E9", "#E69F00", "#2BC598", "#CC79A7", "#F0E442", "#F07F3C", "#F2F2F2", "#9A9A9A"]
)
