"""Which way TensorRT's ONNX parser takes a node, by its documented look-up order; nothing of it was run.

From the source of onnx-tensorrt 10.1 (parseNode, FallbackPluginImporter, GridSample), the change logs of 10.7 and 10.15
and what is quoted of 10.15's source. Everything is looked up by op_type, the domain is not read.

    up to 10.6         built-in importer, function of the model, plugin
    10.7 to 10.14      built-in importer, plugin, function                  [that it held up to 10.14 is inferred]
    from 10.15         plugin if the parser's flag is set or the node has the attribute plugin_namespace;
                       built-in importer, function, plugin
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

VERSIONS = ((8, 6), (10, 1), (10, 6), (10, 7), (10, 14), (10, 15), (11, 1))
DEEPEST = 24  # nested bodies and functions
BUILT_IN = frozenset("""
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast CastLike Ceil Celu
    Clip Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DeformConv DepthToSpace DequantizeLinear
    Div Dropout Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm
    GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid
    HardSwish Hardmax Identity If ImageScaler InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu
    Less LessOrEqual Log LogSoftmax Loop LpNormalization LpPool MatMul Max MaxPool Mean MeanVarianceNormalization Min
    Mish Mod Mul Neg NonMaxSuppression NonZero Not OneHot Or PRelu Pad ParametricSoftplus Pow QuantizeLinear RNN
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize
    ReverseSequence RoiAlign Round ScaledTanh Scan Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign
    Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu
    Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor
""".split())  # noqa: SIM905, quotes around 150 names would not help a reader
MODES = {"nearest": "nearest", "bilinear": "bilinear", "bicubic": "bicubic"}

Plugin = tuple[str, str, str]  # name, version, namespace


def branch(node: onnx.NodeProto, functions: Collection[str], plugins: Collection[Plugin], version: tuple[int, int], *,
           override: bool = False, built_in: Collection[str] = BUILT_IN) -> str:
    """"built-in", "function", "plugin" or "missing".

    Args:
        functions: names of the model's functions.
        plugins: those that are registered.
        version: of TensorRT.
        override: the parser flag kENABLE_PLUGIN_OVERRIDE.
    """
    text = {a.name: a.s.decode() for a in node.attribute if a.type == onnx.AttributeProto.STRING}
    wanted = (node.op_type, text.get("plugin_version", "1"), text.get("plugin_namespace", ""))
    registered = wanted in plugins
    if version >= (10, 15) and registered and (override or "plugin_namespace" in text):
        return "plugin"
    if node.op_type in built_in:
        return "built-in"
    if (10, 7) <= version < (10, 15) and registered:
        return "plugin"
    if node.op_type in functions:
        return "function"
    return "plugin" if registered else "missing"


def walk(model: onnx.ModelProto, plugins: Collection[Plugin], version: tuple[int, int], **options) -> Iterator[tuple]:
    """(node, branch) for every node that the parser meets, bodies and the functions it goes into included.

    Raises:
        RecursionError: nested deeper than TensorRT allows; a function whose body holds its own name is.
    """
    functions = {function.name: function for function in model.functions}

    def enter(nodes, depth):
        if depth > DEEPEST:
            raise RecursionError("the graph contains nested structures that exceed the maximum")
        for node in nodes:
            way = branch(node, functions, plugins, version, **options)
            yield node, way
            if way == "function":
                yield from enter(functions[node.op_type].node, depth + 1)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from enter(attribute.g.node, depth + 1)

    yield from enter(model.graph.node, 0)


def mode_read(node: onnx.NodeProto) -> str:
    """The mode in which TensorRT samples a GridSample: whatever it does not know is nearest."""
    given = {a.name: a for a in node.attribute}
    return MODES.get(given["mode"].s.decode(), "nearest") if "mode" in given else "bilinear"
