"""Files of ExecuTorch, both ways.

    executorch_files.py make FOLDER    writes the golden files of tests/formats/executorch/data (executorch 1.5.1)
    executorch_files.py check STELE    the command reads what ExecuTorch writes; ExecuTorch loads and runs what it writes
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir._serialize._cord import Cord
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor_layout import TensorLayout
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from torch.export import export


class Net(torch.nn.Module):
    """A convolution in channels-last order, a dense layer, and a state that a call changes."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3)
        self.lin = torch.nn.Linear(4, 2)
        self.register_buffer("count", torch.tensor([2.0, 3.0]))

    def forward(self, x):
        self.count.add_(1)
        return self.lin(self.conv(x).flatten(1)[:, :4]) + self.count


def net():
    model = Net().eval()
    for p in model.parameters():
        p.data = (torch.arange(p.numel(), dtype=torch.float32).reshape(p.shape) - 5) / 8
    return model


def programs():
    """Return the bytes of a program, of one with its constants beside it, and of these constants."""
    exported = export(net(), (torch.ones(1, 2, 5, 5),))
    state = [InitializedMutableBufferPass(["count"])]
    inner = to_edge(exported).to_executorch(ExecutorchBackendConfig(passes=state))
    outer = to_edge(exported).to_executorch(ExecutorchBackendConfig(passes=state, external_constants=True))
    with tempfile.TemporaryDirectory() as folder:
        outer.write_tensor_data_to_file(folder)
        (data,) = Path(folder).glob("*.ptd")
        return inner.buffer, outer.buffer, data.read_bytes()


TYPES = {"FLOAT": np.float32, "HALF": np.float16, "DOUBLE": np.float64, "BYTE": np.uint8, "CHAR": np.int8,
         "SHORT": np.int16, "INT": np.int32, "LONG": np.int64, "BOOL": np.bool_, "UINT16": np.uint16,
         "UINT32": np.uint32, "UINT64": np.uint64}


def types():
    """Return a data file with each type, ties, other orders of axes, and data without a layout."""
    payload = DataPayload(buffers=[], named_data={})

    def add(name, kind, shape, data, order=None):
        layout = None
        if kind is not None:
            layout = TensorLayout(getattr(ScalarType, kind), list(shape), order or list(range(len(shape))))
        payload.named_data[name] = DataEntry(len(payload.buffers), 16, layout)
        payload.buffers.append(data)

    for kind, dtype in TYPES.items():
        add(kind.lower(), kind, [3], np.arange(3).astype(dtype).tobytes())
    add("bfloat16", "BFLOAT16", [2], b"\x80\x3f\x00\x40")
    add("float8", "FLOAT8E4M3FN", [2], b"\x38\x40")
    add("scalar", "FLOAT", [], np.float32(2.5).tobytes())
    add("none", "FLOAT", [0, 3], b"")
    image = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    add("channels_last", "FLOAT", image.shape, image.transpose(0, 2, 3, 1).tobytes(), [0, 2, 3, 1])
    add("columns", "INT", [2, 3], np.arange(6, dtype=np.int32).reshape(2, 3).T.tobytes(), [1, 0])
    add("odd.name/é", "CHAR", [1], b"\x07")
    payload.named_data["tied"] = payload.named_data["float"]
    payload.named_data["same_bytes"] = DataEntry(0, 16, TensorLayout(ScalarType.INT, [3, 1], [0, 1]))
    add("blob", None, None, b"any bytes")
    add("quantized", "QINT8", [2], b"ab")
    return bytes(FlatTensorSerializer().serialize(payload))


def delegated():
    """Return a program whose weights belong to a delegate, with keys."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    model = torch.nn.Linear(4, 2)
    model.weight.data = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    exported = export(model.eval(), (torch.ones(1, 4),))
    return to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer


def files():
    inner, outer, data = programs()
    return {"net.pte": inner, "outer.pte": outer, "net.ptd": data, "types.ptd": types(), "xnnpack.pte": delegated()}


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_bytes(content)


def contents(path):
    """Return the tensors of a data file by key: type, sizes and elements in row-major order."""
    payload = FlatTensorSerializer().deserialize(Cord(path.read_bytes()))
    found = {}
    for key, entry in payload.named_data.items():
        layout = entry.tensor_layout
        if layout is None or layout.scalar_type == ScalarType.QINT8:
            continue
        data = payload.buffers[entry.buffer_index]
        order = [int(i) for i in layout.dim_order]
        size = len(data) // max(1, int(np.prod(layout.sizes)))
        stored = np.frombuffer(data, f"V{max(size, 1)}").reshape([layout.sizes[i] for i in order])
        found[key] = (layout.scalar_type, list(layout.sizes), stored.transpose(np.argsort(order)).tobytes())
    return found


def check(stele):
    def convert(*arguments):
        subprocess.run([stele, "convert", *arguments, "--quiet", "--allow-loss"], check=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make(folder)
        for name in ("net", "types"):
            source, copy, other = folder / f"{name}.ptd", folder / "copy.ptd", folder / "other.stele"
            convert(source, copy)
            convert(source, other)
            convert(other, folder / "back.ptd")
            for made in (copy, folder / "back.ptd"):
                expected, found = contents(source), contents(made)
                assert expected == found, (name, expected.keys() ^ found.keys())
            print(f"{name}.ptd: ExecuTorch reads {len(expected)} equal tensors from what stele wrote")
        x = torch.arange(50, dtype=torch.float32).reshape(1, 2, 5, 5) / 16
        results = []
        for program, data in (("net.pte", None), ("outer.pte", "net.ptd"), ("outer.pte", "net-copy.ptd")):
            if data == "net-copy.ptd":
                convert(folder / "net.ptd", folder / data)
            module = _load_for_executorch(str(folder / program), data_path=str(folder / data) if data else None)
            results.append([module.forward([x])[0] for _ in range(2)])
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other))
        assert torch.allclose(results[0][0], net()(x), atol=1e-4)
        print("the runtime runs a program with a data file of stele: equal results")
        convert(folder / "net.pte", folder / "constants.ptd")
        stored = {v[2] for v in contents(folder / "constants.ptd").values()}
        state = net().state_dict()
        assert stored >= {t.numpy().tobytes() for t in state.values()}, "constants of net.pte"
        print("net.pte: its constants and its state are those of the module")


if __name__ == "__main__":
    make(Path(sys.argv[2])) if sys.argv[1] == "make" else check(sys.argv[2])
