"""Operations of networks, counted by hand."""


def conv(inputs: int, outputs: int, kernel: int, side: int) -> int:
    """Operations of a convolution whose output is side×side."""
    return 2 * inputs * outputs * kernel**2 * side**2


def resnet18(width: int, side: int, classes: int = 10) -> int:
    """A stem; four stages of two blocks of two 3×3 convolutions, the later ones with a 1×1 shortcut; a linear layer."""
    total = conv(3, width, 3, side) + 2 * 8 * width * classes
    inputs = width
    for k in range(4):
        c, s = width * 2**k, side // 2**k
        total += conv(inputs, c, 3, s) + 3 * conv(c, c, 3, s)
        total += conv(inputs, c, 1, s) if k else 0
        inputs = c
    return total


def add_blocks(width: int, side: int) -> int:
    """The paper's, behind each stage: a 3×3 convolution to twice the channels and one back."""
    return sum(2 * conv(width * 2**k, 2 * width * 2**k, 3, side // 2**k) for k in range(4))
