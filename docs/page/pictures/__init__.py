"""The pictures of the page: one module per picture, or for several pictures of one subject."""

from pathlib import Path

from fault import Fault
from pictures import adamw, additive, attention, bahdanau_attention, chunks, convolution, cross, cross_entropy, dot, dropout
from pictures import feed_forward, gelu, gemm, leap, lsh, memory, metric, muon, network, pooling, relative, rescale, reversible
from pictures import rotary, rows, seq2seq, sparse
from pictures.picture import Constant, Picture

__all__ = ["PICTURES", "Constant", "Picture", "constants_faults"]

PICTURES: list[Picture] = [
    picture
    for module in (
        (network, memory, gelu, dropout, cross_entropy, additive, pooling, rows, dot, attention, relative, lsh, rotary, rescale)
        + (leap, bahdanau_attention, cross, seq2seq, convolution, feed_forward, metric, gemm, adamw, muon, sparse, chunks)
        + (reversible,)
    )
    for picture in module.PICTURES
]


def constants_faults(root: Path) -> list[Fault]:
    """Constants below `root` that differ from the value in a picture."""
    return [fault for picture in PICTURES for fault in picture.faults(Path(root))]
