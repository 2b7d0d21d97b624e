"""Tables and figures as files of their own."""

from pathlib import Path

from .._checkpoint import make_folder, write_file
from .book import Book
from .specs import Spec, resolve
from .themes import LIGHT

PNG_SCALE = 2
TITLE = {"fontSize": 12, "anchor": "start"}


def write_files(book: Book, folder: Path) -> None:
    """Every table as Markdown, CSV and LaTeX, every figure as PNG, SVG and PDF, with what the page shows at first."""
    make_folder(folder)
    for chapter in book.chapters:
        for name, table in chapter.tables.items():
            texts = {"md": table.to_markdown(), "csv": table.to_csv(), "tex": table.to_latex()}
            for ending, text in texts.items():
                write_file(folder / f"{chapter.prefix}-{name}.{ending}", text.encode())
    menus = book.menus
    first = {menu.name: menu.first for menu in menus}
    for figure in book.figures:
        shown = [first[menu][0] for part in (figure.one, figure.minus) for menu in part.values()]
        title = {"text": figure.caption, "subtitle": " − ".join(shown)}
        write_figure(resolve(figure, menus) | {"title": title | TITLE}, folder, figure.name)


def write_figure(spec: Spec, folder: Path, name: str) -> None:
    """One figure as PNG, SVG and PDF, on white ground; `spec` holds its rows and its title. No display is needed."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(spec, config=LIGHT | {"background": "white"}, allowed_base_urls=[])
    write_file(folder / f"{name}.svg", svg.encode())
    write_file(folder / f"{name}.png", vl_convert.svg_to_png(svg, scale=PNG_SCALE))
    write_file(folder / f"{name}.pdf", vl_convert.svg_to_pdf(svg))
