"""Tables and figures as files of their own."""

from pathlib import Path

from .._checkpoint import make_folder, write_file
from .book import Book
from .specs import resolve
from .themes import LIGHT

PNG_SCALE = 2
TITLE = {"fontSize": 12, "anchor": "start"}


def write_files(book: Book, folder: Path) -> None:
    """Every table as Markdown, CSV and LaTeX, every figure as PNG, SVG and PDF, with what the page shows at first."""
    import vl_convert

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
        spec = resolve(figure, menus) | {"title": {"text": figure.caption, "subtitle": " − ".join(shown)} | TITLE}
        svg = vl_convert.vegalite_to_svg(spec, config=LIGHT | {"background": "white"}, allowed_base_urls=[])
        write_file(folder / f"{figure.name}.svg", svg.encode())
        write_file(folder / f"{figure.name}.png", vl_convert.svg_to_png(svg, scale=PNG_SCALE))
        write_file(folder / f"{figure.name}.pdf", vl_convert.svg_to_pdf(svg))
