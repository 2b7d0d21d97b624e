"""What the report says in sentences: the finding and the protocol."""

from collections.abc import Sequence

from .content import show_p
from .inputs import ORACLE, Group, Line

SELECTIONS = {
    "last": "last: the weights after the last epoch; nothing was chosen.",
    "validation": "validation: the epoch that is best on held-out training images, clean and under the four extra "
    "corruptions; the fifteen test corruptions are touched once.",
    ORACLE: "oracle: the epoch that is best on the test corruptions themselves. This is the authors' way; test images "
    "leak into the choice, and the numbers are optimistic.",
    "given": "given: the network was handed over as it is; how it was chosen is not known.",
}
METRICS = (
    (
        "Corrupted accuracy",
        "Mean over fifteen corruptions and five severities, each of the 75 cells counting the same. The unnormalised "
        "error is one minus it. Nothing is averaged over missing cells.",
    ),
    (
        "mCE",
        "Mean corruption error: for each corruption the error summed over severities, divided by the baseline's; then "
        "the mean over corruptions. The baseline has 100 by definition; lower is better.",
    ),
    (
        "rmCE",
        "Relative mCE: the same ratio of what corruption adds to the clean error (Hendrycks and Dietterich, 2019). It "
        "tells how much is lost, not how much is left.",
    ),
    (
        "ECE",
        "Expected calibration error: the mean gap between confidence and accuracy in fifteen equal bins. The "
        "temperature of the scaled values was fitted on clean validation images, never on test images.",
    ),
    (
        "Accuracy under attack",
        "Of each image changed within epsilon so as to mislead this very network, an upper bound: a better attack may "
        "find more. ℓ∞ bounds every element of the change, ℓ2 its length. Where a network predicts with noise the "
        "attack follows the mean of several noisy passes (EoT).",
    ),
    (
        "± and bands",
        "95 % interval of the mean over seeds by Student's t; a single seed has none. It covers chance in training.",
    ),
    (
        "Paired bootstrap",
        "Test images are drawn anew 2000 times, the same for both sides; the interval holds 95 % of the differences. "
        "It covers chance in the choice of test images, the networks staying as they are.",
    ),
)


def finding(group: Group) -> str:
    """One sentence: who is best of those that saw no test images, and by how much against the baseline."""
    text = _finding(group)
    for pair in (" ± ", " %", "p < ", "p = "):  # numbers stay on one line
        text = text.replace(pair, pair.replace(" ", "\u00a0"))
    return text


def _finding(group: Group) -> str:
    score = group.main_score
    images = (
        group.data if group.suite != "domains" else group.origin.rpartition("#")[0].rstrip()
    )  # which names the source
    ranked = [line for line in group.honest if score in line.scores]
    if not ranked:
        return f"On {images} no series has all the cells that a mean needs."
    best = ranked[0]
    where = {"corrupted": "under corruption", "domains": "on foreign domains", "adversarial": "under attack"}
    place = where.get(score, "on clean images")
    start = f"On {images} {best.name} has the best mean accuracy {place}, {best.percent(score)} %"
    if best.baseline is best.series:
        others = len(ranked) - 1
        return f"{start}: none of the {others} others beats the baseline." if others else f"{start}."
    return start + _against(best)


def protocol(groups: Sequence[Group]) -> list[str]:
    """How weights were chosen and where images come from, a sentence each."""
    selections = dict.fromkeys(line.series.selection for group in groups for line in group.lines)
    origins = [f"Images of {group.data}, {group.suite}: {group.origin}." for group in groups]
    rest = [
        "Series are compared only on the same images; data sets and origins are never mixed.",
        "Temperatures are fitted on clean validation images.",
    ]
    return [*(SELECTIONS[name] for name in selections), *dict.fromkeys(origins), *rest]


def _against(best: Line) -> str:
    if best.baseline is None:
        return "; there is no baseline to compare it with."
    d = best.difference
    if d is None:
        return f"; image by image it cannot be compared with {best.baseline.label}."
    interval = f"95 % interval {100 * d.low:+.2f} to {100 * d.high:+.2f}, p {_p(d.p)}"
    return f", {100 * d.mean:+.2f} points against {best.baseline.label} ({interval}, paired bootstrap)."


def _p(p: float) -> str:
    shown = show_p(p)
    return shown if shown.startswith("<") else f"= {shown}"
