"""Networks as small as they come."""


def smallest(name: str) -> dict[str, object]:
    """Options that make the named network tiny."""
    return {"width": 2} | ({"depth": 10, "widen": 1} if name == "wide_resnet" else {})
