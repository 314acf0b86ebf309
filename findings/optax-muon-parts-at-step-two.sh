#!/bin/sh
# Packages: optax 0.2.8 (optax.contrib.muon) on jax 0.10.2, keras 3.15.1 (keras.optimizers.Muon), on a CPU.
# Expectation: with the same coefficients, momentum 0.95 and five rounds, the steps of all versions of Muon differ only
#   in length, because (muon.4) of docs/layers/muon.md divides the momentum by its norm.
# Behaviour: keras follows (muon.2) to (muon.7) in every step. optax follows them in the first step only; from the
#   second step on the direction differs. It corrects the two parts of Nesterov's momentum for their start at 0 by
#   different powers. The newest gradient therefore has a smaller weight, and the division by the norm does not remove
#   this difference. The lengths differ as well: optax multiplies by sqrt(max(1, columns / rows)), keras by 0.2
#   sqrt(max(rows, columns)).
# Consequence: docs/layers/muon.md, "Why there is no bias correction".
set -u
export KERAS_BACKEND=jax TF_CPP_MIN_LOG_LEVEL=3
exec "$(dirname "$0")/python_with.sh" optax==0.2.8 keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 <<'PROGRAM'
import sys
from importlib.metadata import version

import jax.numpy as jnp
import keras
import numpy as np
import optax

STEPS = 3
print("optax", version("optax"), "keras", version("keras"), "jax", version("jax"))


def steps_of_equations(gradients):
    """(muon.2) to (muon.7), in double."""
    moment = np.zeros(gradients[0].shape)
    for gradient in gradients.astype(float):
        moment = 0.95 * moment + 0.05 * gradient
        x = 0.95 * moment + 0.05 * gradient
        x /= np.linalg.norm(x)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
        yield x


def steps_of_optax(gradients):
    weight = jnp.zeros(gradients[0].shape)
    optimizer = optax.contrib.muon(1.0)
    state = optimizer.init(weight)
    for gradient in gradients:
        update, state = optimizer.update(jnp.asarray(gradient), state, weight)
        yield -np.asarray(update)


def steps_of_keras(gradients):
    weight = keras.Variable(np.zeros(gradients[0].shape, "float32"), name="weight")
    optimizer = keras.optimizers.Muon(1.0, weight_decay=0)
    optimizer.build([weight])
    for gradient in gradients:
        before = np.array(weight.value)
        optimizer.apply([jnp.asarray(gradient)], [weight])
        yield before - np.asarray(weight.value)


draw = np.random.default_rng(1)
angle, length = {}, {}
for rows, columns in ((8, 32), (16, 16), (32, 8)):
    gradients = draw.standard_normal((STEPS, rows, columns)).astype(np.float32)
    for package, steps in (("optax", steps_of_optax), ("keras", steps_of_keras)):
        for step, (got, wanted) in enumerate(zip(steps(gradients), steps_of_equations(gradients)), 1):
            lengths = np.linalg.norm(got), np.linalg.norm(wanted)
            angle[package, rows, step] = np.linalg.norm(got / lengths[0] - wanted / lengths[1])
            length[package, rows, step] = lengths[0] / lengths[1]
            print(f"{rows:2} x {columns:2}, step {step}, {package}: {length[package, rows, step]:.3f} times as long, "
                  f"direction off by {angle[package, rows, step]:.1e}")

first = max(angle[key] for key in angle if key[2] == 1)
later = {package: [angle[key] for key in angle if key[0] == package and key[2] > 1] for package in ("optax", "keras")}
described = first < 1e-3 and max(later["keras"]) < 1e-3 and min(later["optax"]) > 0.05
described &= abs(length["optax", 8, 1] - 2) < 0.01 and abs(length["optax", 32, 1] - 1) < 0.01
described &= abs(length["keras", 8, 1] / (0.2 * 32**0.5) - 1) < 0.01
print("as described" if described else "CHANGED")
sys.exit(not described)
PROGRAM
