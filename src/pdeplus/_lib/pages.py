"""Pages of one file: they open anywhere, ask nothing of any network and show every text literally."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .. import __version__

_IN_SCRIPT = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"})


def render_page(package: str, *, libraries: Sequence[str] = (), **values: Any) -> str:
    """The text of `templates/page.html` in a package such as "pdeplus.reports".

    Every value is escaped; a name that the template uses and nobody gives is an error. Besides the values it is given
    `style`, which is page.css beside it; `scripts`, which are the libraries and then page.js, which builds on them; and
    the `version`.
    """
    pages = _environment(package)
    assert pages.loader is not None
    style, script = (pages.loader.get_source(pages, f"page.{kind}")[0] for kind in ("css", "js"))
    scripts = [_safe_script(text) for text in (*libraries, script)]
    return pages.get_template("page.html").render(values, style=Markup(style), scripts=scripts, version=__version__)


def to_script(value: Any) -> Markup:
    """JSON that stays data inside a script element, whatever text it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_IN_SCRIPT))


def _safe_script(text: str) -> Markup:
    """A script that cannot end its element early; equal to the browser, which sees no difference in a string."""
    return Markup(text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def _sha256(script: str) -> str:
    """The hash by which a content security policy knows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _environment(package: str) -> Environment:
    pages = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    pages.filters |= {"json": to_script, "sha256": _sha256}
    return pages
