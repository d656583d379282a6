"""Products of Darknet's networks, by darknet_files.c with pjreddie/darknet and AlexeyAB/darknet.

    DARKNET=CHECKOUT ALEXEY=CHECKOUT products.py STELE FOLDER
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "products"))
import comparison  # noqa: E402

PACKAGES = []  # the versions of the programs are in data/README.md
PAGES = ["formats/darknet"]
COMPARED = []
FILES = 24
CHECKOUTS = {"original": os.environ["DARKNET"], "AlexeyAB": os.environ["ALEXEY"]}
ORIGINAL, ALEXEY = ("deconvolutional", "crnn"), ("shortcut", "implicit", "shared")
OF_ALEXEY = ("local_avgpool", "scale_channels", "sam", "route in groups", "maxpool in depth", "stride_x")
DIMENSIONS = {
    "program": list(CHECKOUTS),
    "section": ["convolutional", "connected", "batchnorm", "local", "rnn", "gru", "lstm", *ORIGINAL, *ALEXEY],
    "batch_normalize": [0, 1],
    "filters": [4, 1, 6],
    "size": [3, 1, 2],
    "stride": [1, 2],
    "pad": ["pad=0", "pad=1", "padding=1", "padding=2"],
    "groups": [1, 2],
    "before": ["", "maxpool", "maxpool size=3", "upsample", "reorg", "avgpool", "dropout", "route", "route of two", "shortcut",
               "activation", "normalization", "crop", "reorg reverse", "l2norm", *OF_ALEXEY],
    "width": [12, 8, 10],
    "network": [".cfg", "_final", "_100", "spaces and comments", "short names"],
    "file": ["whole", "partial"],
}
SHORT = {"convolutional": "conv", "connected": "conn", "deconvolutional": "deconv", "maxpool": "max", "avgpool": "avg"}


def possible(case):
    section, program = case["section"], case["program"]
    if section in (ALEXEY if program == "original" else ORIGINAL):
        return False
    if section not in ("convolutional", "deconvolutional", "local", "shared") and (case["size"], case["stride"], case["pad"]) != (3, 1, "pad=0"):
        return False
    if section == "local" and case["pad"].startswith("padding") or section == "deconvolutional" and case["pad"] not in ("pad=0", "padding=1"):
        return False
    if case["groups"] != 1 and (section not in ("convolutional", "shared") or case["filters"] % 2 or program == "original" and case["batch_normalize"]):
        return False
    if case["batch_normalize"] and section in ("local", "batchnorm", "shortcut", "implicit"):
        return False
    if case["before"] in (OF_ALEXEY if program == "original" else ("l2norm",)) or case["before"] == "stride_x" and section == "local":
        return False
    if case["before"] in ("reorg reverse", "route in groups") and (section in ("shortcut",) or case["groups"] != 1):
        return False
    if case["before"] == "avgpool" and section not in ("connected", "rnn", "gru", "lstm", "batchnorm"):
        return False
    return True


def sections_of(case):
    """Return the sections of a network: [(name, options)]. Each layer's input has four channels or a multiple of it."""
    kind, norm, filters = case["section"], case["batch_normalize"], case["filters"]
    width = case["width"]
    rows = [("net", [f"width={width}", f"height={width}", "channels=3", "batch=1"]),
            ("convolutional", ["filters=4", "size=3", "pad=1", "activation=leaky"])]
    match case["before"].split():
        case ["maxpool"]:
            rows.append(("maxpool", ["size=2", "stride=2"]))
        case ["maxpool", _]:
            rows.append(("maxpool", ["size=3", "stride=2"]))
        case ["upsample"]:
            rows.append(("upsample", ["stride=2"]))
        case ["reorg"]:
            rows.append(("reorg", ["stride=2"]))
        case ["avgpool"]:
            rows.append(("avgpool", []))
        case ["dropout"]:
            rows.append(("dropout", ["probability=.5"]))
        case ["activation"] | ["normalization"] | ["l2norm"]:
            rows.append((case["before"], ["activation=leaky"] if case["before"] == "activation" else []))
        case ["crop"]:
            rows.append(("crop", ["crop_width=6", "crop_height=6"]))
        case ["reorg", "reverse"]:
            rows.append(("reorg", ["stride=2", "reverse=1"]))
        case ["local_avgpool"]:
            rows.append(("local_avgpool", ["size=2", "stride=2"]))
        case ["scale_channels"]:
            rows += [("avgpool", []), ("scale_channels", ["from=-2", "activation=linear"])]
        case ["sam"]:
            rows += [("convolutional", ["filters=4", "size=1", "activation=linear"]), ("sam", ["from=-2"])]
        case ["route", "in", _]:
            rows.append(("route", ["layers=-1", "groups=2", "group_id=1"]))
        case ["maxpool", "in", _]:
            rows.append(("maxpool", ["maxpool_depth=1", "out_channels=4"]))
        case ["stride_x"]:
            rows.append(("convolutional", ["filters=4", "size=3", "pad=1", "stride_x=2", "stride_y=1", "activation=leaky"]))
        case ["route"]:
            rows.append(("route", ["layers=-1"]))
        case ["route", *_]:
            rows += [("convolutional", ["filters=8", "size=1", "activation=linear"]), ("route", ["layers=-1,0"])]
        case ["shortcut"]:
            rows += [("convolutional", ["filters=4", "size=1", "activation=linear"]), ("shortcut", ["from=-2", "activation=linear"])]
    shape = [f"filters={filters}", f"size={case['size']}", f"stride={case['stride']}", case["pad"], "activation=leaky"]
    normalized = [f"batch_normalize={norm}"]
    match kind:
        case "convolutional":
            rows.append((kind, [*normalized, f"groups={case['groups']}", *shape]))
        case "shared":
            rows += [("convolutional", [*normalized, f"groups={case['groups']}", "filters=12", "size=3", "pad=1", "activation=leaky"]),
                     ("convolutional", ["filters=12", "size=3", "pad=1", "activation=leaky", *normalized]),
                     ("convolutional", ["share_index=-1", *normalized, "filters=12", "size=3", "pad=1", "activation=leaky"])]
        case "deconvolutional":
            rows.append((kind, [*normalized, *shape]))
        case "local":
            rows.append((kind, shape))
        case "connected":
            rows.append((kind, [*normalized, f"output={filters}", "activation=leaky"]))
        case "rnn":
            hidden = ["hidden=5"] if case["program"] == "AlexeyAB" else []
            rows.append((kind, [*normalized, f"output={filters}", *hidden, "activation=leaky"]))
        case "gru" | "lstm":
            rows.append((kind, [*normalized, f"output={filters}"]))
        case "crnn":
            rows.append((kind, [*normalized, f"output_filters={filters}", "hidden_filters=2", "activation=leaky"]))
        case "shortcut":
            rows += [("convolutional", ["filters=4", "size=1", "activation=linear"]), ("convolutional", ["filters=4", "size=1", "activation=linear"]),
                     ("shortcut", ["from=-2", "weights_type=per_channel", "weights_normalization=relu", "activation=linear"]),
                     ("shortcut", ["from=-2,-3", "weights_type=per_feature", "weights_normalization=softmax", "activation=linear"])]
        case "implicit":
            rows += [(kind, [f"filters={filters}", "atoms=2"]), ("route", ["layers=0"])]
        case "batchnorm":
            rows.append((kind, []))
    # Its matrix shows the size of the layer before.
    return [*rows, ("connected", ["output=2", "activation=linear"]), ("softmax", [])]


def text_of(case, sections):
    loose = case["network"].startswith("spaces")
    lines = []
    for name, options in sections:
        written = SHORT.get(name, name) if case["network"] == "short names" else name
        lines += ["", f"[{written}]", *([" # a comment", "; another", "", *(o.replace("=", " =\t") for o in options)] if loose else options)]
    return "\n".join(lines[1:]) + "\n"


def program(name):
    """Return darknet_files.c, linked with a program's sources, in its checkout."""
    checkout = Path(CHECKOUTS[name])
    path = checkout / "darknet_files"
    if not path.exists():
        flags = ["-O1", "-w", "-I", checkout / "include", "-I", checkout / "src", "-I", checkout / "3rdparty/stb/include",
                 *(["-DALEXEY"] if name == "AlexeyAB" else [])]
        left_out = ("darknet.c", "darkserver.c", "compare.c", "yolo_console_dll.cpp", "yolo_v2_class.cpp")
        sources = [HERE / "interop" / "darknet_files.c", *(s for s in sorted((checkout / "src").glob("*.c*")) if s.name not in left_out and
                                                           s.suffix in (".c", ".cpp"))]
        objects = [checkout / f"{source.name}.products.o" for source in sources]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda pair: subprocess.run(["gcc", *flags, "-c", pair[0], "-o", pair[1]], check=True), zip(sources, objects)))
        subprocess.run(["g++", *objects, "-o", path, "-lm", "-lpthread"], check=True)
    return path


def write(case, path):
    """Write a network and its weights by the program."""
    sections = sections_of(case)
    cfg = path.with_suffix(".cfg")
    cfg.write_text(text_of(case, sections))
    end = case["network"] if case["network"].startswith("_") else ""
    file = path.with_name(f"{path.name}{end}.weights")
    done = subprocess.run([program(case["program"]), cfg, file], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    places = [(line[0], int(line[1]), int(line[2])) for line in lines if len(line) == 3 and line[0][0].isdigit() and "." in line[0]]
    if case["file"] == "partial":  # as `darknet partial` writes it: without the last layer that has weights
        last = places[-1][0].split(".")[0]
        first = min(number for name, number, _ in places if name.split(".")[0] == last)
        data = file.read_bytes()
        file.write_bytes(data[:20 + 4 * first])
        places = [place for place in places if place[0].split(".")[0] != last]
    return file, comparison.Expected(dict(tensor(place, sections, places) for place in places))


def tensor(place, sections, places):
    """Return the name and the content of a part, whose first number the program printed: they count."""
    layer, _, part = place[0].partition(".")
    _, first, count = place
    kind, options = sections[int(layer) + 1]
    option = dict(o.split("=", 1) for o in options)
    sizes = {name: size for name, _, size in places}
    beside = sizes.get(place[0].rsplit(".", 1)[0] + ".biases")
    side = int(option.get("size", 3 if kind == "crnn" else 1))
    filters = int(option.get("filters", 1))
    if part.endswith("weights"):
        match kind:
            case "convolutional" | "crnn":
                shape = [beside, count // (beside * side * side), side, side]
            case "deconvolutional":
                shape = [count // (filters * side * side), filters, side, side]
            case "local":
                around = round((beside // filters) ** 0.5)
                shape = [around, around, filters, count // (beside * side * side), side, side]
            case "shortcut":
                inputs = option["from"].count(",") + 2
                shape = [inputs] if count == inputs else [inputs, count // inputs]
            case "implicit":
                shape = [filters, int(option["atoms"])]
            case _:
                shape = [beside, count // beside]
    elif kind == "local":
        around = round((count // filters) ** 0.5)
        shape = [filters, around, around]
    else:
        shape = [count]
    return f"{layer}.{kind}.{part}", ((np.arange(count) + first) / 8).astype("<f4").reshape(shape)


if __name__ == "__main__":
    comparison.main(sys.modules[__name__])
