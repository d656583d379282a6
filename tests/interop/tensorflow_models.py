#!/usr/bin/env python3
"""TensorFlow models with inputs and what TensorFlow computes from them: for import.sh.

tensorflow_models.py FOLDER           writes FOLDER/NAME/ for each case
tensorflow_models.py FOLDER --tiny    writes FOLDER/run_NAME.pb or run_NAME/ (a SavedModel) of a few KB, and
                                      run_NAME.safetensors: inputs (in.NAME) and results (out.NAME), for its golden files

A case has model.pb (a frozen GraphDef) or saved_model/, and inputs.txt and outputs.txt as the cases of import.py have
them. Inputs and outputs have the names of tensors, without ":0". The cases:

op_OPERATOR_...    one operator
refused_...        a model that the import must refuse; it has no outputs.txt
NAME, NAME_open, NAME_saved, NAME_saved_open    whole models, frozen or saved, with fixed or open extents
"""
import shutil
import sys

import tensorflow_graphs as graphs
import tensorflow_arrays  # adds its cases  # noqa: F401
import tensorflow_networks as networks
import tensorflow_old as old
import tensorflow_operators as operators
import tensorflow_refused as refused

import numpy
import tensorflow as tf

import keras

TINY = ("cnn_open", "bert_tiny_einsum_open", "bert_tiny_matmul_open", "image_open", "mlp_saved_open",
        "functions_saved_open", "tf1_saved_open")


def saved_model(model, function, specs, path):
    """Saves a model with variables, Keras's by its own exporter."""
    if isinstance(model, keras.Model):
        model.export(str(path), format="tf_saved_model", verbose=False,
                     input_signature=specs if len(specs) == 1 else [specs])
    else:
        tf.saved_model.save(model, str(path), signatures=function.get_concrete_function(*specs))


def network_cases(sizes, wanted):
    """Yields the name of a case, and a function that writes it into a folder."""
    for name, make, inputs in networks.networks():
        for form in ("", "_open", "_saved", "_saved_open"):
            if wanted(name + form):
                yield name + form, lambda folder, args=(make, inputs, form): network_case(folder, sizes, *args)


def network_case(folder, sizes, make, inputs, form):
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = make(sizes)
    if isinstance(model, keras.Model):
        networks.randomize(model)
    arrays, shapes = networks.arrays_of(inputs, sizes, form.endswith("_open"))
    specs = [tf.TensorSpec(shapes[n], a.dtype, n) for n, a in arrays.items()]
    if isinstance(model, keras.Model):
        function = tf.function(lambda *x: model(list(x) if len(x) > 1 else x[0], training=False), autograph=False)
    else:
        function = tf.function(model.__call__, autograph=False)
    expected = [t.numpy() for t in tf.nest.flatten(function(*map(tf.constant, arrays.values())))]
    folder.mkdir(parents=True)
    if "saved" in form:
        saved_model(model, function, specs, folder / "saved_model")
        feeds, outputs = graphs.run_saved(folder / "saved_model", arrays)
        graphs.write_case(folder, feeds, outputs)
    else:
        graph_def, names, results = graphs.freeze(function, specs)
        outputs = graphs.write_frozen(folder, graph_def, dict(zip(names, arrays.values())), results)
    graphs.assert_close(expected, outputs.values(), folder.name)


def whole_models(sizes, wanted):
    yield from network_cases(sizes, wanted)
    yield from ((name, write) for name, write in old.cases(sizes) if wanted(name))


def tiny(out):
    """Writes the small models, and what they compute, as the tests of C++ read them."""
    from safetensors.numpy import save_file
    work = out / "cases.tmp"
    for name, write in whole_models(networks.TINY, TINY.__contains__):
        case, target = work / name, out / ("run_" + name)
        write(case)
        tensors = {}
        for kind, prefix in (("inputs", "in."), ("outputs", "out.")):
            for line in (case / f"{kind}.txt").read_text().splitlines():
                key, path, _ = line.split("\t")
                tensors[prefix + key] = numpy.ascontiguousarray(numpy.load(path))
        save_file(tensors, f"{target}.safetensors")
        if (case / "model.pb").exists():
            graph = tf.compat.v1.GraphDef.FromString((case / "model.pb").read_bytes())
            target.with_suffix(".pb").write_bytes(
                graphs.without_defaults(graph).SerializeToString(deterministic=True))
        else:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(case / "saved_model", target, ignore=shutil.ignore_patterns("assets", "fingerprint.pb"))
    shutil.rmtree(work)


def main():
    out = graphs.folder_of(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if "--tiny" in sys.argv:
        return tiny(out)
    for case in out.iterdir():  # of an earlier run
        if (case / "inputs.txt").exists():
            shutil.rmtree(case)
    counts = operators.write_operators(out)
    counts["models"] = counts["refused"] = 0
    for kind, cases in (("models", whole_models(networks.FULL, lambda name: True)), ("refused", refused.cases())):
        for name, write in cases:
            write(out / name)
            counts[kind] += 1
    print(", ".join(f"{key}: {count}" for key, count in counts.items()))


main()
