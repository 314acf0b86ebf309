"""ONNX: the operators of opset 23, with the reference evaluator; ONNX Runtime with --runtime as the first argument."""

import sys

import numpy as np
import onnx
import rows
from onnx import TensorProto, helper
from rows import MIXED, cell, main

RUNTIME = sys.argv[1:2] == ["--runtime"]
if RUNTIME:
    import onnxruntime

    del sys.argv[1]
OPSET = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]


def run(nodes, inputs, output="y", output_type=TensorProto.FLOAT):
    """Outputs of nodes for arrays by name."""
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in inputs.items()], [helper.make_tensor_value_info(output, output_type, None)])
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=10)
    if not RUNTIME:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(model).run(None, inputs)[0]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def op(name, inputs, **attributes):
    return run([helper.make_node(name, list(inputs), ["y"], **attributes)], inputs)


def attend(query, key, value, mask=None, **attributes):
    inputs = {"q": query[None, None], "k": key[None, None], "v": value[None, None]}
    if mask is not None:
        inputs["mask"] = mask
    return op("Attention", inputs, **attributes)[0, 0]


@cell("masked_bool")
def _():
    return rows.masked_row(attend, MIXED)


@cell("masked_inf", "masked_finite")
def masked(row):
    return rows.masked_row(attend, rows.added(-np.inf if row == "masked_inf" else np.finfo(np.float32).min))


@cell("module_weights")
def _():
    """The attention weights as another output (mode 3)."""

    def with_weights(query, key, value, mask):
        inputs = {"q": query[None, None], "k": key[None, None], "v": value[None, None], "mask": mask}
        node = helper.make_node("Attention", list(inputs), ["y", "", "", "weights"], qk_matmul_output_mode=3)
        return run([node], inputs)[0, 0]

    return rows.masked_row(with_weights, MIXED)


@cell("causal_alignment")
def _():
    return rows.aligned(lambda query, key, value: attend(query, key, value, is_causal=1))


@cell("later_tokens")
def _():
    return rows.later_tokens(lambda x: attend(x, x, x, is_causal=1))


@cell("rotary")
def _():
    def turn(x):
        angles = np.arange(3)[:, None] * 10000.0 ** (-np.arange(8) / 8)
        cos, sin = (f(angles)[None].astype(np.float32) for f in (np.cos, np.sin))
        return op("RotaryEmbedding", {"x": x[None, None], "cos": cos, "sin": sin})[0, 0]

    return rows.rotary(turn, 16).rsplit(",", 1)[0] + ", base as given"


@cell("gelu")
def _():
    return rows.gelu(lambda x: op("Gelu", {"x": x}))


@cell("layernorm")
def _():
    return rows.layernorm(lambda x: op("LayerNormalization", {"x": x, "scale": np.ones(4, np.float32)}))


@cell("ignored_targets")
def _():
    def loss(logits, targets, ignored):
        return op("SoftmaxCrossEntropyLoss", {"x": logits, "t": np.where(ignored, -1, targets)}, ignore_index=-1)

    return rows.ignored(loss)


@cell("sum", "mean", "norm", "cumsum")
def sums(row):
    x = np.full(rows.COUNT, 0.1, np.float32)
    if row == "cumsum":
        return rows.off(row, op("CumSum", {"x": x, "axis": np.array(0)})[-1])
    name = {"sum": "ReduceSum", "mean": "ReduceMean", "norm": "ReduceL2"}[row]
    return rows.off(row, op(name, {"x": x}, keepdims=0))


@cell("to_bf16")
def _():
    nodes = [helper.make_node("Cast", ["x"], ["n"], to=TensorProto.BFLOAT16), helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT)]
    return rows.narrowed(lambda x: run(nodes, {"x": x}))


main()
