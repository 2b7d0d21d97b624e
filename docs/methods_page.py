"""Cards: what each method's file says of it, and the page docs/methods.md made of them.

python docs/methods_page.py > docs/methods.md
"""

import inspect
import re
from functools import cache

from pdeplus._lib import registry
from pdeplus.evaluation.cost import training_flops
from pdeplus.methods.base import Method, overlaps_of
from pdeplus.studies.experiment import named_methods
from pdeplus.training.config import Config, Part
from pdeplus.training.run_folder import Expects, build_source

KEYS = ("Idea", "Formula", "Source", "Defaults", "Cost", "Published")
INTRODUCTION = """\
Every training method has a card: idea, formula, source, defaults, cost and published results. The column FLOPs has
those of a training step with the default options (ResNet-18, 32 × 32 pixels) relative to ERM's; of the augmentations,
only convolutions are counted. The column "seen in training" has the test corruptions that the method applies to
training images ([overlap audit](evaluation.md#a-protocol-that-does-not-leak)). A name without a card is a
method with certain options, which `pdeplus list methods` shows. Numbers in the cards are from the literature; for our
own, see [the study](study.md) and [choose a method](choose.md). (`python docs/methods_page.py` writes this page from
the top of each file in `src/pdeplus/methods/`.)

Three options mean the same in every method that has them. `views` names the views in the cross-entropy: the `original`,
an `augmented` view, the mean of both (`original+augmented`), or two augmentations, each with its own crop and flip
(`both augmented`); `published` is the recipe of the card. `jsd` is the weight of the Jensen-Shannon divergence between
predictions, 0 for none. `agreeing` is the number of these predictions: 2 (the first view of the cross-entropy and an
augmentation) or 3 (the original and two augmentations). Each view in the loss is one pass through the network."""
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
    """FLOPs of a training step on ResNet-18 at 32 pixels, as a multiple of ERM's."""
    return _flops(registry.build("methods", part.name, part.options)) / _flops(registry.build("methods", "erm", {}))


def methods_page() -> str:
    """The page: a table of all methods, then every card."""
    names = registry.names("methods")
    lines = [
        "# Methods",
        "",
        INTRODUCTION,
        "",
        "| method | in tables | what | FLOPs × ERM | seen in training |",
        "|---|---|---|---:|---|",
    ]
    for name, part in named_methods().items():
        method: Method = registry.build("methods", part.name, part.options)
        label, title = method.label, card(part.name)["Title"].rstrip(".")
        shown = f"[`{name}`](#{name})" if not part.options else f"`{name}`"
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
