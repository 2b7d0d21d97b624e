"""PGD, APGD, which sets its own step size, and their parts: losses, gradients, steps, balls in both norms.

Gradients are only ever taken with respect to the images.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError, check_choice

Norm = Literal["linf", "l2"]
"""The size of a change: its largest element, or its Euclidean length over all elements of the image."""
Logits = Callable[[Tensor], Tensor]
"""From float images B×C×H×W in [0, 1] to B×classes, differentiable."""
Losses = Callable[[Tensor, Tensor], Tensor]
"""From logits B×classes and labels B to a loss for each image, B."""
NO_GRADIENT = (
    "an attack needs the gradient of the logits with respect to the images, and this model gives none; attack the "
    "torch network itself: no .onnx file, nothing under torch.no_grad or behind .detach() or .numpy()"
)
MOMENTUM = 0.75
"""Share of the new step in APGD; the rest repeats the step before."""
ENOUGH = 0.75
"""Share of APGD's steps that must raise the loss, or the step size is halved."""


class Ascent(NamedTuple):
    """Some images and the way up from them."""

    point: Tensor
    """The images, B×C×H×W."""
    losses: Tensor
    """Of each, B."""
    gradient: Tensor
    """Of each one's loss, B×C×H×W."""
    broken: Tensor
    """Which are taken for something else, B."""


def pgd(
    logits: Logits,
    x: Tensor,
    labels: Tensor,
    *,
    norm: Norm,
    epsilon: float,
    steps: int = 1,
    step_size: float | None = None,
    random_start: bool = False,
    cut_first: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Images near x by projected steepest ascent of the cross-entropy, of the shape of x and without a gradient.

    Each lies in [0, 1] and within epsilon of its x in the norm; no parameter's gradient is touched.

    Args:
        logits: from images to logits B×classes; called once for each step.
        x: float images B×C×H×W in [0, 1], with their labels, B.
        norm: of the change of one image, epsilon its largest size.
        steps: one from x itself is the fast gradient sign method (ℓ∞), or its like in ℓ2.
        step_size: length of a step in the norm; None is epsilon for one step, 2.5·epsilon/steps for more.
        random_start: begin at a random point within epsilon instead of at x.
        cut_first: cut a step to [0, 1] before it is pulled back to epsilon, not after: in ℓ2 a long step then keeps its
            length where pixels are black or white.
        generator: source of that point.
    """
    check_budget(norm, epsilon, steps)
    length = (epsilon if steps == 1 else 2.5 * epsilon / steps) if step_size is None else step_size
    x = x.detach()
    point = random_point(x, norm, epsilon, generator) if random_start else x
    for _ in range(steps):
        at = ascent(logits, point, labels, cross_entropy)
        point = point + length * steepest(at.gradient, norm)
        point = project(point.clamp(0, 1) if cut_first else point, x, norm, epsilon)
    return point


def apgd(
    logits: Logits, x: Tensor, start: Tensor, labels: Tensor, losses: Losses, *, norm: Norm, epsilon: float, steps: int
) -> Tensor:
    """Auto-PGD (Croce and Hein, 2020): ascent with momentum from `start`, the step size halved where it stalls.

    Of all points on the way each image's worst is returned: one that breaks it, where there is one, and of these
    (or of all) the one of the greatest loss; so it is never better than `start`.
    """
    at = ascent(logits, start, labels, losses)
    before, highest, worst = start, at, at
    step = x.new_full((len(x),), 2 * epsilon)
    rises, since = torch.zeros_like(at.broken, dtype=torch.long), 0
    step_then, highest_then = step, at.losses
    looks = set(checkpoints(steps))
    for k in range(1, steps + 1):
        point = at.point
        target = project(point + per_image(step, x) * steepest(at.gradient, norm), x, norm, epsilon)
        if k > 1:
            target = project(point + MOMENTUM * (target - point) + (1 - MOMENTUM) * (point - before), x, norm, epsilon)
        found = ascent(logits, target, labels, losses)
        rises += found.losses > at.losses
        before, at = point, found
        worst = choose(is_worse(at, worst), at, worst)
        highest = choose(at.losses > highest.losses, at, highest)
        if k in looks:
            stalled = (step == step_then) & (highest.losses == highest_then)
            step_then, highest_then = step, highest.losses
            halve = (rises < ENOUGH * (k - since)) | stalled
            step = torch.where(halve, step / 2, step)
            at = choose(halve, highest, at)
            rises, since = torch.zeros_like(rises), k
    return worst.point


def checkpoints(steps: int) -> list[int]:
    """The steps after which APGD looks back: ⌈p_j · steps⌉, p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06)."""
    before, p, found = 0, 22, list[int]()  # in hundredths, which are exact
    while p <= 100:
        found.append(-(-p * steps // 100))
        before, p = p, p + max(p - before - 3, 6)
    return sorted(set(found))


def worst_of(once: Callable[[int], Tensor], restarts: int, logits: Logits, labels: Tensor, losses: Losses) -> Tensor:
    """Each image's worst of several attempts."""
    point = once(0)
    if restarts == 1:
        return point
    worst = ascent(logits, point, labels, losses)
    for k in range(1, restarts):
        at = ascent(logits, once(k), labels, losses)
        worst = choose(is_worse(at, worst), at, worst)
    return worst.point


def ascent(logits: Logits, x: Tensor, labels: Tensor, losses: Losses) -> Ascent:
    """Losses and their gradients with respect to the images; nothing else receives a gradient."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        try:
            z = logits(x)
        except RuntimeError as error:
            if "requires grad" in str(error):  # torch's answer to .numpy()
                raise UserError(NO_GRADIENT) from error
            raise
        if not z.requires_grad:
            raise UserError(NO_GRADIENT)
        each = losses(z, labels)
        gradient = cast(Tensor | None, torch.autograd.grad(each.sum(), [x], allow_unused=True)[0])
    if gradient is None:  # there is one, but not with respect to the images
        raise UserError(NO_GRADIENT)
    return Ascent(x.detach(), each.detach(), gradient, z.detach().argmax(-1) != labels)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Of each image; in double precision, in which the gradient of a sure prediction does not vanish."""
    return F.cross_entropy(_precise(logits), labels, reduction="none")


def dlr(logits: Tensor, labels: Tensor) -> Tensor:
    """Difference of logits ratio of each image: -(z_y - max of the others) / (z_first - z_third).

    It is positive where another class wins, and neither shifting nor scaling the logits changes it.
    """
    if logits.shape[-1] < 3:
        classes = logits.shape[-1]
        raise UserError(f"the DLR loss needs 3 classes, the model has {classes}; choose attack='apgd_ce' or 'pgd'")
    z = _precise(logits)
    first, _, third = z.topk(3).values.unbind(-1)
    own = z.gather(-1, labels[:, None])
    others = z.scatter(-1, labels[:, None], -math.inf).amax(-1)
    return (others - own[:, 0]) / (first - third).clamp(min=1e-12)


def steepest(gradient: Tensor, norm: Norm) -> Tensor:
    """The direction of unit norm in which each image's loss rises most; zero where the gradient is."""
    if norm == "linf":
        return gradient.sign()
    tiny = torch.finfo(gradient.dtype).tiny
    largest = gradient.flatten(1).abs().amax(1).clamp(min=tiny)
    scaled = gradient / per_image(largest, gradient)  # or small gradients' squares would vanish
    return scaled / _lengths(scaled).clamp(min=tiny)


def project(point: Tensor, x: Tensor, norm: Norm, epsilon: float) -> Tensor:
    """The point pulled back to within epsilon of x, then clipped to [0, 1]."""
    change = point - x
    if norm == "linf":
        change = change.clamp(-epsilon, epsilon)
    else:
        change = change * (epsilon / _lengths(change).clamp(min=torch.finfo(x.dtype).tiny)).clamp(max=1)
    return (x + change).clamp(0, 1)


def random_point(x: Tensor, norm: Norm, epsilon: float, generator: torch.Generator | None) -> Tensor:
    """A point uniform within epsilon of x in the norm, then clipped to [0, 1]."""
    empty = torch.empty_like(x, memory_format=torch.contiguous_format)
    if norm == "linf":
        change = empty.uniform_(-epsilon, epsilon, generator=generator)
    else:
        share = x.new_empty(len(x)).uniform_(generator=generator) ** (1 / x[0].numel())
        change = steepest(empty.normal_(generator=generator), "l2") * (epsilon * per_image(share, x))
    return (x + change).clamp(0, 1)


def per_image(values: Tensor, like: Tensor) -> Tensor:
    """A number for each image, B, in a shape that goes with the images."""
    return values.view(-1, *[1] * (like.ndim - 1))


def is_worse(new: Ascent, old: Ascent) -> Tensor:
    """Where the new point is worse for the network: it breaks the image and the old one does not, or its loss is more.

    A broken image is never given back for one that is merely less sure.
    """
    return (new.broken & ~old.broken) | ((new.broken == old.broken) & (new.losses > old.losses))


def choose(which: Tensor, new: Ascent, old: Ascent) -> Ascent:
    """Image by image the new one or the old."""
    return Ascent(*(torch.where(per_image(which, a), a, b) for a, b in zip(new, old, strict=True)))


def check_budget(norm: Norm, epsilon: float, steps: int, restarts: int = 1) -> None:
    """Refuse an unknown norm, a negative size and less than one step or restart."""
    check_choice("norm", norm, Norm)
    for name, value, least in (("epsilon", epsilon, 0), ("steps", steps, 1), ("restarts", restarts, 1)):
        if not value >= least:
            raise UserError(f"{name}={value} of an attack must be at least {least}")


def _precise(logits: Tensor) -> Tensor:
    return logits.float() if logits.device.type == "mps" else logits.double()


def _lengths(change: Tensor) -> Tensor:
    """Euclidean length of each image's change, B×1×1×1."""
    return per_image(change.flatten(1).square().sum(1).sqrt(), change)
