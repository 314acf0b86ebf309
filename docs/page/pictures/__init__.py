"""The pictures of the page, one module each or a few that belong together."""

from pathlib import Path

from fault import Fault
from pictures import additive, attention, chunks, convolution, cross_entropy, gemm, leap, memory, metric, muon, network
from pictures import lsh, pooling, relative, rescale, reversible, rotary, rows, sparse
from pictures.picture import Constant, Picture

__all__ = ["PICTURES", "Constant", "Picture", "constants_faults"]

PICTURES: list[Picture] = [
    picture
    for module in (
        (network, memory, cross_entropy, additive, pooling, rows, attention, relative, lsh, rotary, rescale, leap)
        + (convolution, metric, gemm, muon, sparse, chunks, reversible)
    )
    for picture in module.PICTURES
]


def constants_faults(root: Path) -> list[Fault]:
    """Every constant below `root` that a picture shows with another value."""
    return [fault for picture in PICTURES for fault in picture.faults(Path(root))]
