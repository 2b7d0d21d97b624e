"""Cards: what each method's file says of it, and the page docs/methods.md made of them.

python docs/methods_page.py > docs/methods.md
"""

import inspect
import re
from functools import cache

from pdeplus._lib import registry
from pdeplus.evaluation.cost import training_flops
from pdeplus.methods.base import Method, overlaps_of
from pdeplus.studies.experiment import named_methods, settings
from pdeplus.training.config import Config, Part
from pdeplus.training.run_folder import Expects, build_source

KEYS = ("Idea", "Formula", "Source", "Defaults", "Cost", "Published")
INTRODUCTION = """\
Made of the cards at the top of the files in `src/pdeplus/methods/` by `python docs/methods_page.py`. Operations are
counted: those of a training step with the default options, ResNet-18 at 32 × 32 pixels, over ERM's; what
augmentations cost without convolutions is not in it. Seen in training: test corruptions that the training images
have been through (the overlap audit). Numbers in the cards are the literature's, not ours.

Three options mean the same in every method that has them. `views` says whose cross-entropy is the task: the
`original`'s, an `augmented` view's, the mean of both (`original+augmented`), or that of two augmentations, each of a
crop and flip of its own (`both augmented`); `published` is the recipe of the card. `jsd` is the weight of the agreement
of predictions, 0 for none. `agreeing` says of how many: 2, the first view of the task and an augmentation, or 3, the
original and two augmentations. A step has as many passes through the network as there are views in its loss."""
EXPECTS = Expects(classes=tuple("0123456789"), shape=(3, 32, 32))


def card(name: str) -> dict[str, str]:
    """A method's title and the six paragraphs of its card; refuses a file whose card is incomplete."""
    text = inspect.getdoc(inspect.getmodule(registry.find("methods", name))) or ""
    title, _, rest = text.partition("\n")
    parts = re.split(rf"^({'|'.join(KEYS)}): ", rest, flags=re.M)
    found = {key: " ".join(body.split()) for key, body in zip(parts[1::2], parts[2::2], strict=True)}
    missing = [key for key in KEYS if not found.get(key)]
    if missing:
        raise ValueError(f"methods/{name}.py: its card lacks {', '.join(missing)}")
    return {"Title": title, **found}


def relative_cost(part: Part) -> float:
    """Operations of a training step on ResNet-18 at 32 pixels, as a multiple of ERM's."""
    return _flops(registry.build("methods", part.name, part.options)) / _flops(registry.build("methods", "erm", {}))


def methods_page() -> str:
    """The page: a table of all methods, then every card."""
    names = registry.names("methods")
    lines = [
        "# Methods",
        "",
        INTRODUCTION,
        "",
        "| method | in tables | what | operations × ERM | seen in training |",
        "|---|---|---|---:|---|",
    ]
    for name, part in named_methods().items():
        method: Method = registry.build("methods", part.name, part.options)
        label, title = method.label, card(part.name)["Title"].rstrip(".")
        shown = f"[`{name}`](#{name})" if not part.options else ", ".join(f"`{text}`" for text in settings(name))
        lines.append(f"| {shown} | {label} | {title} | {relative_cost(part):.2f} | {_seen(method)} |")
    for name in names:
        lines += ["", f"## {name}", "", f"**{card(name)['Title']}**", ""]
        lines += [f"- *{key}*: {card(name)[key]}" for key in KEYS]
        options = registry.resolved("methods", name, {})
        lines += ["- *Options*: " + (", ".join(f"`{key} = {value!r}`" for key, value in options.items()) or "none")]
    return "\n".join(lines) + "\n"


def _seen(method: Method) -> str:
    transform = build_source(Config()).transform
    names = sorted({name for found in overlaps_of(method, transform).values() for name in found})
    return ", ".join(name.replace("_", " ") for name in names) or "none"


@cache
def _flops(method: Method) -> float:
    """At width 64, from three narrow networks: operations are a polynomial of second degree in the width."""
    configs = [Config(model=Part(name="resnet18", options={"width": width})) for width in (8, 16, 24)]
    first, second, third = (training_flops(config, method, EXPECTS, 1) for config in configs)
    steps = (64 - 8) // 8
    return first + steps * (second - first) + steps * (steps - 1) / 2 * (third - 2 * second + first)


if __name__ == "__main__":
    print(methods_page(), end="")
