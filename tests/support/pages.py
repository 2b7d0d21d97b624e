"""What the documentation shows as shell commands: in Markdown, and in the comments of the gallery's scripts."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "tutorials")
"""Pages in Markdown; docs/tutorials is what the site's build makes of the scripts."""
SCRIPTS = sorted((ROOT / "docs" / "gallery").glob("*.py"))
FENCE = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.S | re.M)
DIRECTIVE = re.compile(r"^\.\. code-block:: (\w+)\n\n((?:    .*\n|\n)+)", re.M)


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in these languages."""
    text, script = page.read_text("utf-8"), page.suffix == ".py"
    found = DIRECTIVE.findall(re.sub(r"^# ?", "", text, flags=re.M)) if script else FENCE.findall(text)
    return [code for language, code in found if language in languages]


def shell(page: Path) -> list[str]:
    """The commands of a page, one in each line, without what follows a pipe or a comment."""
    lines = "\n".join(blocks(page, "bash", "sh")).replace("\\\n", " ").splitlines()
    return [re.split(r" [#|>] ?", line.strip())[0].strip() for line in lines if line.strip()]
