"""Checkpoints of PyTorch through `stele convert`: nothing is lost in silence."""

import unittest
from collections import OrderedDict

from pytorch_files import Tensor, load, number, plain, save
from support import InFolder, data, document, run, succeed

MODEL = OrderedDict([("fc.weight", Tensor(1, 2, 3, 4, shape=(2, 2))), ("fc.bias", Tensor(5, 6))])
ADAM = {"lr": 0.25, "betas": (0.5, 0.75), "eps": 1e-6, "weight_decay": 0, "amsgrad": False, "maximize": False,
        "foreach": None, "capturable": False, "differentiable": False, "fused": None, "decoupled_weight_decay": False}
SGD = {"lr": 0.5, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False,
       "foreach": None, "differentiable": False, "fused": None}


def adam(stepped=True, **settings):
    state = {i: {"step": number(3), "exp_avg": Tensor(*range(4 if i == 0 else 2), shape=MODEL[name].shape),
                 "exp_avg_sq": Tensor(*range(4 if i == 0 else 2), shape=MODEL[name].shape)}
             for i, name in enumerate(MODEL)} if stepped else {}
    return {"state": state, "param_groups": [{**ADAM, **settings, "params": [0, 1]}]}


def sgd():
    return {"state": {}, "param_groups": [{**SGD, "params": [0, 1]}]}


# Files that no count of tensors tells from a plain state_dict.
FILES = {
    "whisper": {"dims": {"n_mels": 80, "n_vocab": 51865}, "model_state_dict": MODEL},
    "lightning": {"state_dict": MODEL, "epoch": 3, "config": {"lr": 0.1}},
    "ema": {"params_ema": MODEL},
    "nested": {"x": {"y": {"z": Tensor(1)}}},
    "optimizer": adam(),
    "sgd": {"model": MODEL, "optimizer": sgd(), "epoch": 4, "scheduler": {"last_epoch": 4}, "best_acc": 0.5},
    "never_stepped": {"model": MODEL, "optimizer": adam(stepped=False), "epoch": 4},
    "adam": {"model_state_dict": MODEL, "optimizer_state_dict": adam(), "epoch": 2, "loss": 0.5},
    "sgd_and_a_tensor": {"model": MODEL, "optimizer": sgd(), "loss": number(0.5)},
}


class Plain(InFolder):
    """Without --checkpoint, names, nesting and values stay."""

    def test_to_pytorch(self):
        for name, content in FILES.items():
            with self.subTest(name):
                succeed("convert", save(content, self.path("a.pt")), self.path("b.pt"))
                self.assertEqual(plain(load(self.path("b.pt"))), plain(content))

    def test_to_every_format(self):
        for name, content in FILES.items():
            file = save(content, self.path("a.pt"))
            before = document("inspect", file)
            for extension in ("zip", "fb", "sdz", "stele", "safetensors", "json", "npz", "mpk"):
                with self.subTest(name, to=extension):
                    out = self.path(f"{name}.{extension}")
                    status, _, err = run("convert", file, out)
                    if status != 0:  # a loss that the target names
                        self.assertIn(b"--allow-loss", err)
                        continue
                    after = document("inspect", out)
                    self.assertEqual(sorted(t["name"] for t in after["tensors"]),
                                     sorted(t["name"] for t in before["tensors"]))
                    if extension != "mpk":  # Burn's files have no null
                        self.assertEqual(after.get("values"), before.get("values"))


class Expanded(InFolder):
    """Tensors with a stride of 0."""

    def test_statistics_read_what_is_stored(self):
        numbers = (1, 2, 5, 0)
        for rows in (3, 1 << 40):
            for shape, strides in (((rows, 2, 2), (0, 2, 1)), ((2, rows, 2), (1, 0, 2))):
                file = save({"w": Tensor(*numbers, shape=shape, strides=strides)}, self.path("w.pt"))
                stats = document("inspect", file, "--stats")["tensors"][0]["stats"]
                self.assertEqual(stats["zeros"], rows)
                self.assertEqual((stats["min"], stats["max"], stats["mean"]), (0, 5, 2))
                self.assertAlmostEqual(stats["std"], 3.5 ** 0.5)
                self.assertAlmostEqual(stats["norm"] / (30 * rows) ** 0.5, 1)
        status, _, err = run("hash", file)
        self.assertEqual(status, 2)
        self.assertIn(b"--limit", err)


class Checkpoints(InFolder):
    """With --checkpoint, the rest is listed."""

    def lost(self, content, target="b.zip", *options):
        """Return what a checkpoint of the file loses, after a refusal without --allow-loss."""
        file = save(content, self.path("a.pt"))
        rows = document("convert", file, self.path(target), "--checkpoint", "--allow-loss", *options)["rows"]
        lost = [row["path"] for row in rows if row["what"] == "lost"]
        for dry in ([], ["--dry-run"]):
            status, _, err = run("convert", file, self.path(target), "--checkpoint", *options, *dry)
            self.assertEqual(status, 2 if lost else 0, err)
        return lost

    def test_what_is_neither_model_nor_optimizer_is_listed(self):
        self.assertEqual(self.lost(FILES["adam"]), ["loss"])
        self.assertEqual(self.lost(FILES["adam"], "b.pt"), ["loss"])
        self.assertEqual(self.lost(FILES["sgd_and_a_tensor"]), ["loss"])
        self.assertEqual(self.lost(FILES["sgd"]), ["scheduler", "best_acc"])
        self.assertEqual(self.lost(FILES["whisper"]), ["dims"])
        self.assertEqual(self.lost(FILES["lightning"]), ["epoch", "config"])  # no optimizer, no configuration
        self.assertEqual(self.lost(FILES["ema"]), [])
        self.assertEqual(self.lost({"model": MODEL, "optimizer": adam(), "iteration": 2, "epoch": None}),
                         ["iteration", "epoch"])  # the optimizer has made 3 steps
        self.assertEqual(self.lost({"model": MODEL, "copy": MODEL, "optimizer": {**adam(), "scaler": {"x": 1}}}),
                         ["copy", "optimizer.scaler"])

    def test_an_optimizer_alone_is_no_checkpoint(self):
        status, _, err = run("convert", save(adam(), self.path("o.pt")), self.path("o.zip"), "--checkpoint")
        self.assertEqual(status, 2)
        self.assertIn(b"without a model", err)

    def test_one_of_several_models(self):
        content = {"state_dict": MODEL, "ema_state_dict": OrderedDict((k, Tensor(*[7] * len(t.numbers), shape=t.shape))
                                                                      for k, t in MODEL.items()),
                   "optimizer_states": [adam()], "global_step": 3}
        file = save(content, self.path("a.pt"))
        status, _, err = run("convert", file, self.path("b.zip"), "--checkpoint")
        self.assertEqual(status, 2)
        self.assertIn(b"state_dict, ema_state_dict", err)
        self.assertEqual(self.lost(content, "b.pt", "--part", "ema_state_dict"), ["state_dict"])
        made = load(self.path("b.pt"))
        self.assertEqual(plain(made["model_state_dict"])["fc.bias"], [[2], [7, 7]])
        self.assertEqual(made["optimizer_state_dict"]["state"][0]["exp_avg"].numbers, (0, 1, 2, 3))
        status, _, err = run("convert", save(FILES["ema"], self.path("a.pt")), self.path("b.zip"))
        self.assertEqual(status, 0, err)
        status, _, err = run("convert", self.path("b.zip"), self.path("c.zip"), "--checkpoint", "--part", "params_ema")
        self.assertEqual(status, 2)
        self.assertIn(b"--part", err)

    def test_never_stepped(self):
        self.assertEqual(self.lost(FILES["never_stepped"]), [])
        succeed("convert", self.path("b.zip"), self.path("c.pt"))
        group = load(self.path("c.pt"))["optimizer_state_dict"]["param_groups"][0]
        self.assertEqual({**group, "params": None}, {**group, **ADAM, "params": None})
        self.assertEqual(load(self.path("c.pt"))["optimizer_state_dict"]["state"], {})
        self.assertEqual(self.lost(FILES["never_stepped"], "b.pt"), [])
        self.assertEqual(load(self.path("b.pt"))["optimizer_state_dict"]["param_groups"][0]["lr"], 0.25)


class Graphs(InFolder):
    def test_a_graph_is_a_loss(self):
        model = data("samediff") / "convolution_trained.fb"
        for dry in ([], ["--dry-run"]):
            status, _, err = run("convert", model, self.path("g.pt"), *dry)
            self.assertEqual(status, 2)
            self.assertIn(b"pass --allow-loss", err)
            rows = document("convert", model, self.path("g.pt"), "--allow-loss", *dry)["rows"]
            self.assertEqual([(row["what"], row["detail"]) for row in rows], [("lost", "the graph")])
        self.assertIn("optimizer_state_dict", load(self.path("g.pt")))


class Settings(InFolder):
    def through_a_zip(self, optimizer):
        file = save({"model": MODEL, "optimizer": optimizer}, self.path("a.pt"))
        rows = document("convert", file, self.path("a.zip"), "--checkpoint", "--allow-loss")["rows"]
        succeed("convert", self.path("a.zip"), self.path("b.pt"))
        return load(self.path("b.pt"))["optimizer_state_dict"]["param_groups"][0], [row["path"] for row in rows]

    def test_tensors_of_one_element_are_numbers(self):
        group, rows = self.through_a_zip(adam(lr=number(0.125), betas=(number(0.5), Tensor(0.25))))
        self.assertEqual((group["lr"], group["betas"], rows), (0.125, (0.5, 0.25), []))

    def test_what_the_configuration_does_not_have_is_listed(self):
        group, rows = self.through_a_zip(adam(lr=Tensor(1, 2), initial_lr=0.5, fused=True))
        self.assertEqual(rows, ["optimizer.param_groups.0.lr", "param_groups.0.fused", "param_groups.0.initial_lr"])
        two = adam()
        two["param_groups"] = [{**ADAM, "params": [0]}, {**ADAM, "lr": 0.5, "name": "head", "params": [1]}]
        for group, name in zip(two["param_groups"], MODEL):
            group["param_names"] = [name]
        self.assertEqual(self.through_a_zip(two)[1], ["param_groups.1.lr", "param_groups.1.name"])

    def test_pytorch_keeps_them(self):
        content = {"model": MODEL, "optimizer": adam(initial_lr=0.5, lr=number(0.125))}
        succeed("convert", save(content, self.path("a.pt")), self.path("b.pt"), "--checkpoint")
        group = load(self.path("b.pt"))["optimizer_state_dict"]["param_groups"][0]
        self.assertEqual((group["initial_lr"], group["lr"]), (0.5, 0.125))


if __name__ == "__main__":
    unittest.main()
