#!/usr/bin/env python3
"""Which operators of ONNX the CPU provider of onnxruntime runs, on which dtypes: ir/data/onnxruntime.txt.

    onnxruntime_kernels.py write FILE      writes the table
    onnxruntime_kernels.py compare FILE    compares the table with this onnxruntime

Makes a model of one node for each operator that ir/data/onnx imports, each version and each combination of dtypes, and
asks onnxruntime for a session. Needs onnx and onnxruntime.
"""

import itertools
import re
import sys
from pathlib import Path

import onnx
import onnxruntime
from onnx import TensorProto, defs, helper

FIRST, LAST = 13, 22  # the versions that stele writes
DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float", "f64": "double", "i8": "int8", "i16": "int16",
          "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
          "bool": "bool"}
OF_ONNX = {f"tensor({long})": short for short, long in DTYPES.items()}
CODES = {short: getattr(TensorProto, long.upper()) for short, long in DTYPES.items()}
REQUIRED = {"equation": "...", "kernel_shape": [1, 1], "direction": "LEFT"}  # values of required attributes; others are 1
CALLS = {"If", "Loop", "Scan", "SequenceMap"}  # have subgraphs

onnxruntime.set_default_logger_severity(4)
OPTIONS = onnxruntime.SessionOptions()
OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.intra_op_num_threads = OPTIONS.inter_op_num_threads = 1


def runs(schema, version, ports, dtypes, to):
    """Return whether onnxruntime makes a session of one node. `ports`: its inputs' dtypes, "" for none."""
    names = [f"x{i}" if port else "" for i, port in enumerate(ports)]
    attributes = {name: REQUIRED.get(name, 1) for name, a in schema.attributes.items() if a.required}
    if to:
        attributes["to"] = CODES[to]
    given = [helper.make_tensor_value_info(n, CODES[dtypes.get(p, p)], None) for n, p in zip(names, ports) if n]
    node = helper.make_node(schema.name, names, [f"y{i}" for i in range(max(1, schema.min_output))], **attributes)
    graph = helper.make_graph([node], "g", given, [helper.make_empty_tensor_value_info("y0")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS)
        return True
    except Exception as error:  # its classes have no common base
        text = str(error)
        if "Exception during initialization" in text:
            return True  # the kernel exists, and asks for more attributes
        if "NOT_IMPLEMENTED" not in text and "Type Error" not in text:
            raise SystemExit(f"{schema.name} {version} {dtypes}: {text}") from error
        return False


def boxes(found):
    """Return combinations as few products of sets: [(set, set, ...)]."""
    products = [tuple(frozenset([d]) for d in one) for one in found]
    for axis in reversed(range(len(products[0]) if products else 0)):
        groups = {}
        for p in products:
            groups.setdefault(p[:axis] + p[axis + 1:], set()).update(p[axis])
        products = [rest[:axis] + (frozenset(all_),) + rest[axis:] for rest, all_ in groups.items()]
    return products


def lines_of(name, version):
    """Return the lines of an operator: its ports, and the dtypes of its variables that run."""
    schema = defs.get_schema(name, version, "")
    allowed = {c.type_param_str: [OF_ONNX[t] for t in c.allowed_type_strs if t in OF_ONNX] for c in schema.type_constraints}
    # A function, in place of a kernel that does not exist, may have other nodes for an optional input.
    all_given = schema.has_function or schema.has_context_dependent_function
    inputs, given, bound = [], [], set()
    for port in schema.inputs:
        kind = port.type_str if port.type_str in allowed else OF_ONNX[port.type_str]
        inputs.append(kind + "*" * (port.option == defs.OpSchema.FormalParameterOption.Variadic))
        needed = all_given or port.option != defs.OpSchema.FormalParameterOption.Optional or (kind in allowed and kind not in bound)
        given.append(kind if needed else "")
        bound.add(kind)
    outputs = [o.type_str if o.type_str in allowed else OF_ONNX[o.type_str] for o in schema.outputs]
    variables = [v for v in allowed if v in bound or (name == "Cast" and v in outputs)]
    found = [one for one in itertools.product(*(allowed[v] for v in variables))
             if runs(schema, version, given, dict(zip(variables, one)), one[1] if name == "Cast" else None)]
    signature = ",".join(inputs) + ">" + ",".join(o if o in DTYPES or o in variables else "?" for o in outputs)
    if not variables:  # a node without dtypes runs or does not
        return [signature] if found else []
    order = list(DTYPES)
    return sorted(" ".join([signature] + [f"{v}={','.join(sorted(p, key=order.index))}" for v, p in zip(variables, box)])
                  for box in boxes(found))


def table():
    rules = "".join(p.read_text() for p in sorted((Path(__file__).parents[2] / "ir/data/onnx").glob("*.pbtxt")))
    blocks = re.findall(r"^mappings \{.*?^\}", rules, re.DOTALL | re.MULTILINE)
    names = {re.search(r'inputFrameworkOpName: "(\w+)"', b)[1] for b in blocks if "\n  domain:" not in b}
    text = [f"# Operators and dtypes that the CPU provider of onnxruntime {onnxruntime.__version__} runs, by the version of ONNX's",
            "# operators. Written by tests/interop/onnxruntime_kernels.py."]
    for name in sorted(names - CALLS):
        before, written = None, None
        for version in range(FIRST, LAST + 1):
            try:
                schema = defs.get_schema(name, version, "")
            except defs.SchemaError:
                continue  # a later operator, or not of ONNX
            since = schema.since_version
            if since == before or schema.deprecated:
                continue
            before, lines = since, lines_of(name, version)
            if lines != written:
                text += [f"{name} {max(since, FIRST)} {line}" for line in lines]
            written = lines
    return "\n".join(text) + "\n"


def main():
    action, file = sys.argv[1:]
    if action == "write":
        Path(file).write_text(table())
        return 0
    ours, now = Path(file).read_text().splitlines()[2:], table().splitlines()[2:]
    for line in sorted(set(ours) ^ set(now)):
        print("-" if line in ours else "+", line)
    return 0 if ours == now else 1


if __name__ == "__main__":
    sys.exit(main())
