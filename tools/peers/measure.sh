#!/bin/sh
# tools/peers/measure.sh LIBRARY [ROW...]: measures cells of docs/peers.md in an empty virtual environment, with the
# versions below and in constraints.txt, and compares them with the table. LIBRARY: a word before a colon below; `ours`
# takes the build folder from BUILD (default build). PYTHON names a Python to use instead, if it has these versions.
# Status: 1 if a cell differs or was not measured, 2 if the packages cannot be installed.
set -u
folder=$(cd "$(dirname "$0")" && pwd)
library=${1:?usage: tools/peers/measure.sh LIBRARY [ROW...]}
shift
packages=$(sed -n "s/^# $library: //p" "$0")
[ -n "$packages" ] || { echo "tools/peers/measure.sh: $library: expected one of$(sed -n 's/^# \([a-z0-9_]*\): .*==.*/ \1/p' "$0" | tr -d '\n')" >&2; exit 2; }
# torch: torch==2.15.0 numpy==2.4.6
# jax: jax==0.10.2 jaxlib==0.10.2 optax==0.2.8 numpy==2.4.6
# mlx: mlx==0.32.4 mlx-cpu==0.32.4 numpy==2.4.6
# keras: keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
# onnx: onnx==1.23.2 numpy==2.4.6
# onnxruntime: onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
# transformers: transformers==5.24.0 torch==2.15.0 numpy==2.4.6
# x_transformers: x-transformers==2.31.10 torch==2.15.0 numpy==2.4.6
# performer: performer-pytorch==1.1.4 torch==2.15.0 numpy==2.4.6
# fla: fla-core==0.6.0 packaging==26.4 torch==2.15.0 numpy==2.4.6
# tinygrad: tinygrad==0.14.0 numpy==2.4.6
# ctranslate2: ctranslate2==4.8.5 transformers==5.24.0 torch==2.15.0 numpy==2.4.6
# ours: torch==2.15.0 numpy==2.4.6
program=${library}_cells.py
[ "$library" = onnxruntime ] && program="onnx_cells.py --runtime"
export HF_HUB_OFFLINE=1 PYTHONWARNINGS=ignore TF_CPP_MIN_LOG_LEVEL=3 PEERS_FOLDER="$folder"
export PIP_CONSTRAINT="$folder/constraints.txt" UV_CONSTRAINT="$folder/constraints.txt"
export PEERS_LIBRARY="$library" PEERS_PROGRAM="$program" PEERS_ROWS="$*" BUILD="${BUILD:-build}"
# shellcheck disable=SC2086
exec "$folder/../../findings/python_with.sh" $packages <"$folder/compare.py"
