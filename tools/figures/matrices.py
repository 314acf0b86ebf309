"""Matrices as lists of rows."""

import math
import random


Vector = list[float]
Matrix = list[Vector]


def normal_matrix(numbers: random.Random, rows: int, columns: int) -> Matrix:
    return [[numbers.gauss(0, 1) for _ in range(columns)] for _ in range(rows)]


def dot(x: Vector, y: Vector) -> float:
    return sum(a * b for a, b in zip(x, y))


def transposed(x: Matrix) -> Matrix:
    return [list(column) for column in zip(*x)]


def product(x: Matrix, y: Matrix) -> Matrix:
    return [[dot(row, column) for column in zip(*y)] for row in x]


def largest(x: Matrix) -> float:
    return max(abs(element) for row in x for element in row)


def error(x: Matrix, y: Matrix) -> float:
    """Largest absolute difference of two elements."""
    return max(abs(a - b) for row, other in zip(x, y) for a, b in zip(row, other))


def causal_weights(score_cc: Matrix) -> Matrix:
    """Softmax of every row over its own and earlier positions; 0 for later positions."""
    weight_cc = []
    for c, score in enumerate(score_cc):
        power = [math.exp(s - max(score[: c + 1])) for s in score[: c + 1]]
        weight_cc.append([p / sum(power) for p in power] + [0.0] * (len(score) - c - 1))
    return weight_cc
