"""Parameters from a file (--init, --evaluate, --predict, --init_map), and frozen ones (--freeze). A
network of PyTorch predicts the same in Weir, from its state dict. Training continues from an export
and from a checkpoint, alone and with servers. Mismatches are refused with a reason."""
# label: cluster
import json
import os
import tempfile

import harness
import weights

SIZE, N_TEST = 10, 60
MODEL = {
    "name": "small", "input": [1, SIZE, SIZE], "classes": 10, "layers": [
        {"type": "conv2d", "name": "features.0", "filters": 3, "kernel": 3, "padding": "same"},
        {"type": "batch_norm", "name": "features.1"},
        {"type": "relu"},
        {"type": "max_pool", "kernel": 2},
        {"type": "flatten"},
        {"type": "dense", "name": "head", "units": 10},
        {"type": "softmax_cross_entropy"}]}
# A training step that changes nothing: the figures after it are those of the first values.
STILL = ["--optimizer=sgd", "--learning_rate=1e-30", "--train_steps=1", "--batch_size=10",
         "--intra_op_threads=1"]
STAT = "--freeze=*/moving_*"


class Weights(harness.Test):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weir-small-")
        cls.addClassCleanup(cls.folder.cleanup)
        harness.make_data(cls.folder.name, n_train=200, n_test=N_TEST, size=SIZE)

    @classmethod
    def data(cls):
        return cls.folder.name

    def model(self, change=None, name="m.json"):
        text = json.loads(json.dumps(MODEL))
        if change:
            change(text["layers"])
        return self.write(name, json.dumps(text))

    def alone(self, *flags, model=None, status=0):
        """Runs a worker by itself; returns its summary, its export, and its output."""
        export, summary = self.path("export"), self.path("summary")
        process = self.run_worker(*STILL, "--export=" + export, "--summary_json=" + summary, *flags,
                                  model=model or self.model(), status=status)
        if status:
            return None, None, process.output()
        return harness.read_json(summary), harness.read_safetensors(export), process.output()

    def state_file(self, state, name="state.safetensors"):
        weights.write(self.path(name), state)
        return self.path(name)

    def images(self):
        images = weights.read_idx(os.path.join(self.data(), "t10k-images-idx3-ubyte"), 16)
        labels = weights.read_idx(os.path.join(self.data(), "t10k-labels-idx1-ubyte"), 8)
        return [images[k * SIZE * SIZE:(k + 1) * SIZE * SIZE] for k in range(N_TEST)], labels

    def check_predictions(self, state, summary):
        images, labels = self.images()
        loss = right = 0
        for image, label in zip(images, labels):
            x = weights.small_predict(state, image)
            loss += weights.cross_entropy(x, label) / N_TEST
            right += x.index(max(x)) == label
        self.assertAlmostEqual(summary["test_loss"], loss, delta=1e-5 * max(1, loss))
        self.assertEqual(summary["test_accuracy"], right / N_TEST)

    def check_values(self, state, export):
        for name, (shape, values) in export.items():
            torch_name = name.replace("/weights", ".weight").replace("/gamma", ".weight").replace(
                "/biases", ".bias").replace("/beta", ".bias").replace(
                    "/moving_mean", ".running_mean").replace("/moving_variance", ".running_var")
            for got, want in zip(values, state[torch_name][2], strict=True):
                self.assertAlmostEqual(got, want, delta=1e-25, msg=name)  # a step of STILL

    def test_state_dict_predicts_like_pytorch(self):
        state = weights.small_state(5)
        summary, export, said = self.alone("--init=" + self.state_file(state), STAT)
        self.check_values(state, export)
        self.check_predictions(state, summary)
        self.assert_has(said, "first values of 8 of 8 parameters", "2 of 8 parameters are frozen")

    def test_predictions_of_each_sample_match(self):
        """The test compares the probabilities of each sample, not only the mean loss."""
        state = weights.small_state(8)
        self.alone("--init=" + self.state_file(state), STAT)
        self.check_each(state, self.path("export"))

    def predict(self, file, *flags, model=None):
        """Returns the outputs that --predict writes, and the worker's output."""
        out = self.path("out.csv")
        process = self.run_worker("--predict=" + file, "--output=" + out, "--intra_op_threads=1",
                                  *flags, model=model or self.model())
        return weights.predicted(out), process.output()

    def check_each(self, state, file, *flags, model=None):
        want = [weights.softmax(weights.small_predict(state, image)) for image in self.images()[0]]
        got, said = self.predict(file, *flags, model=model)
        self.assertLess(weights.furthest(got, want), 1e-5)
        return said

    def evaluate(self, file, *flags, model=None, status=0):
        summary = self.path("evaluated.json")
        process = self.run_worker("--evaluate=" + file, "--intra_op_threads=1",
                                  "--summary_json=" + summary, *flags, model=model or self.model(),
                                  status=status)
        if status:
            return None, process.output()
        return harness.read_json(summary), process.output()

    def test_state_dict_evaluated_and_predicted_directly(self):
        """--evaluate and --predict need no training step. Flags may set another normalisation."""
        state = weights.small_state(9)
        file = self.state_file(state)
        said = self.check_each(state, file)
        self.assertIn("8 of 8 parameters from %s; 0 stay as initialised, 0 tensors are not used" %
                      file, said)
        summary, _ = self.evaluate(file)
        self.check_predictions(state, summary)
        self.assertEqual(summary["global_step"], -1)
        of_init, _, _ = self.alone("--init=" + file, STAT)
        self.assert_same(summary, of_init, "parameters_sha256", "test_loss")
        for path, flags in ((file, ["--mean=0.5", "--std=0.25"]), (self.path("export"), [])):
            self.alone("--init=" + file, STAT, "--mean=0.5", "--std=0.25")
            rows, said = self.predict(path, *flags)
            self.assertIn("samples are normalised: mean 0.5, standard deviation 0.25", said)
            want = [weights.softmax(weights.small_predict(state, [(p / 255 - 0.5) / 0.25 * 255
                                                                  for p in image]))
                    for image in self.images()[0]]
            self.assertLess(weights.furthest(rows, want), 1e-5)

    def test_state_dict_of_other_names_predicted_by_map(self):
        """The network's convolution has no biases, as often before a batch normalisation. The file
        has more tensors than the network has parameters."""
        state = weights.small_state(10)
        state["features.0.bias"] = "F32", (3,), [0.0] * 3
        names = {"features.0.weight": "conv", "head.weight": "classifier.weight",
                 "head.bias": "classifier.bias"}
        other = {names.get(name, name.replace("features.1", "bn")): tensor
                 for name, tensor in state.items() if name != "features.0.bias"}
        other["aux.weight"] = "F32", (2, 2), [1.0] * 4
        with open(self.path("map"), "w", encoding="utf-8") as f:
            f.write("features.0/weights = conv\nfeatures.0/biases = -\nfeatures.1 = bn\n"
                    "head = classifier\n")
        file, flag = self.state_file(other), "--init_map=" + self.path("map")
        said = self.check_each(state, file, flag)
        self.assertIn("unexpected: tensor 'aux.weight' (2x2) belongs to no parameter", said)
        self.assertIn("7 of 8 parameters from %s; 1 stay as initialised, 1 tensors are not used" %
                      file, said)
        summary, _ = self.evaluate(file, flag)
        self.check_predictions(state, summary)

    def test_state_dict_determines_classes(self):
        """The number of classes is that of the head's outputs, wherever the head is in the file. It
        must not be lower than in the data."""
        def auto(layers):
            layers[5]["units"] = "classes"

        model = self.model(auto, "auto.json")
        text = harness.read_json(model)
        harness.write_file(model, json.dumps(dict(text, classes="auto")))
        for n, last in ((14, (3,)), (14, (15,)), (10, (12,))):
            state = weights.small_state(n, classes=n)
            state["zz"] = "F32", last, [1.0] * last[0]
            file = self.state_file(state)
            self.assertIn("tensor 'zz'", self.check_each(state, file, model=model))
        _, said = self.evaluate(self.state_file(weights.small_state(1, classes=9)), model=model,
                                status=1)
        self.assertIn("other shape: 'head/biases' is 10, but tensor 'head.bias' is 9", said)

    def test_mismatched_state_dict_refused_in_inference(self):
        state = weights.small_state(7)
        state["other.weight"] = state.pop("head.weight")
        del state["features.1.running_var"]
        state["features.0.bias"] = ("F32", (1,), [1.0])
        file, out = self.state_file(state), self.path("out.csv")
        with open(self.path("map"), "w", encoding="utf-8") as f:
            f.write("head/weights = -\nfeatures.0/biases = -\nfeatures.1/moving_variance = -\n")
        for flag in ("--evaluate=" + file, "--predict=" + file):
            flags = [flag] if "evaluate" in flag else [flag, "--output=" + out]
            said = self.run_worker(*flags, model=self.model(), status=1).output()
            self.assert_has(
                said, flag + ": missing: 'head/weights' (10x75: no tensor is called 'head/weights' "
                "or 'head.weight')", flag +
                ": missing: 'features.1/moving_variance' (3: no tensor is called "
                "'features.1/moving_variance' or 'features.1.running_var')", flag +
                ": other shape: 'features.0/biases' is 3, but tensor 'features.0.bias' " "is 1",
                flag + ": the file is of another model. It lacks 2 of 8 parameters, and 1 have "
                "another shape. Set --model")
            said = self.run_worker(*flags, "--init_map=" + self.path("map"), model=self.model(),
                                   status=1).output()
            self.assertIn(flag + ": 'head/weights' would keep its random initial values", said)
            self.assertFalse(os.path.exists(out))

    def test_checkpoint_preferred_to_init(self):
        """A job with a checkpoint ignores --init, alone and with servers. One line reports that."""
        folder = "--checkpoint_dir=" + self.path("alone")
        file = "--init=" + self.state_file(weights.small_state(2))
        _, first, said = self.alone(file, folder, "--learning_rate=0.1", STAT)
        self.assertIn("first values of 8 of 8 parameters from", said)
        self.assertNotIn("has precedence", said)
        _, again, said = self.alone(file, folder, "--learning_rate=0.1", STAT)
        self.assertEqual(first, again)
        self.assertIn("the checkpoint at step 1 has precedence: %s is not used" % file, said)
        self.assertNotIn("first values of", said)
        flags = [*STILL, "--learning_rate=0.1"]
        for steps in (2, 4):
            job = self.job(n_ps=1, n_workers=1, model=self.model(),
                           flags=[*flags, "--train_steps=%d" % steps])
            job.start_ps(0, "--checkpoint_dir=" + self.path("servers"))
            worker = job.start_worker(0, file)
            job.finish()
            first = "first values of 8 of 8 parameters from"
            later = "the job at step 2 has precedence: %s is not used" % file
            for words, there in ((first, steps == 2), (later, steps == 4)):
                self.assertEqual(words in worker.output(), there, worker.output())

    def test_state_dict_predicts_like_installed_pytorch(self):
        """PyTorch's own modules and predictions: of each sample, and their mean loss."""
        torch = weights.torch2(self)
        nn = torch.nn
        torch.manual_seed(3)
        net = nn.Sequential()
        net.add_module("features", nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)))
        net.add_module("relu", nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()))
        net.add_module("head", nn.Linear(75, 10))
        images, labels = self.images()
        x = torch.tensor([list(i) for i in images], dtype=torch.float32).reshape(-1, 1, SIZE, SIZE)
        x /= 255
        net(x)  # updates the running statistics
        net.eval()
        y = net(x)
        loss = nn.functional.cross_entropy(y, torch.tensor(list(labels))).item()
        state = weights.torch_state(net)
        file = self.state_file(state)
        summary, export, _ = self.alone("--init=" + file, STAT)
        self.check_values(state, export)
        for path in (file, self.path("export")):
            far = weights.furthest(self.predict(path)[0], y.softmax(1).tolist())
            print("PyTorch %s: furthest apart: %.2g" % (torch.__version__, far))
            self.assertLess(far, 1e-5, path)
        self.assertAlmostEqual(summary["test_loss"], loss, delta=1e-5)
        self.assertEqual(summary["test_accuracy"],
                         sum(int(k) == v for k, v in zip(y.argmax(1), labels)) / N_TEST)

    def test_export_fine_tuned_with_frozen_layers(self):
        """Only parameters that are not frozen change, also with an optimizer that decays weights. A
        new head starts with random values."""
        trained = self.path("trained")
        _, before, _ = self.alone("--optimizer=adam", "--learning_rate=0.01", "--train_steps=20")
        os.rename(self.path("export"), trained)

        def new_head(layers):
            layers[5].update(name="fresh", units=12)
            layers.insert(6, {"type": "dense", "name": "last", "units": 10})

        harness.write_file(self.path("map"), "# what is new\nfresh = -\nlast = -\n")
        model = self.model(new_head, "new.json")
        _, after, said = self.alone(
            "--init=" + trained, "--init_map=" + self.path("map"), "--freeze=features*",
            "--optimizer=adamw", "--weight_decay=0.5", "--learning_rate=0.01", "--train_steps=5",
            model=model)
        for name in before:
            if name.startswith("features"):
                self.assertEqual(after[name], before[name])
        self.assertEqual(after["fresh/weights"][0], [12, 75])
        _, first, _ = self.alone("--init=" + trained, "--init_map=" + self.path("map"), model=model)
        self.assertNotEqual(after["last/weights"], first["last/weights"])
        self.assertIn("unexpected: tensor 'head/weights' (10x75) belongs to no parameter", said)

    def test_servers_start_from_first_worker(self):
        """Training continues from these values; frozen parameters stay on the servers, with
        momentum, too."""
        state = weights.small_state(6)
        file = self.state_file(state)
        flags = [*STILL, "--freeze=features*", "--learning_rate=0.1", "--optimizer=momentum",
                 "--weight_decay=0.1", "--train_steps=4"]
        job = self.job(n_ps=2, model=self.model(), flags=flags)
        job.start_servers()
        job.start_worker(0, "--init=" + file, "--export=" + self.path("after"))
        job.start_worker(1)
        summaries = job.finish()
        self.assertEqual(summaries[0]["parameters_sha256"], summaries[1]["parameters_sha256"])
        after = harness.read_safetensors(self.path("after"))
        self.check_values(state, {k: v for k, v in after.items() if k.startswith("features")})
        self.assertNotEqual(list(after["head/weights"][1]), state["head.weight"][2])

    def test_later_worker_logs_unused_init(self):
        """The first worker has another file for --init, or none."""
        states = [weights.small_state(seed) for seed in (11, 12)]
        files = [self.state_file(s, "%d.safetensors" % i) for i, s in enumerate(states)]
        flag = "--init=" + files[1]
        not_used = "first worker (task 0, if present) sets the first values: %s of this" % flag
        for own in (["--init=" + files[0]], []):
            job = self.job(n_ps=1, model=self.model(), flags=STILL)
            job.start_ps(0)
            first = job.start_worker(0, *own, "--export=" + self.path("after"))
            second = job.start_worker(1, flag)
            job.finish()
            self.assertIn(not_used, second.output())
            self.assertNotIn("first values of", second.output())
            self.assertEqual("first values of 8 of 8 parameters from" in first.output(), bool(own))
            self.assertNotIn("is not used", first.output())
            if own:
                after = harness.read_safetensors(self.path("after"))
                self.check_values(states[0], {k: v for k, v in after.items() if "moving" not in k})

    def test_workers_agree_on_frozen_layers(self):
        """A worker with other frozen layers is refused; a worker that joins receives the list."""
        job = self.job(n_workers=1, model=self.model(),
                       flags=[*STILL, "--learning_rate=0.01", "--train_steps=30",
                              "--log_every=1", "--freeze=head/biases"])
        gate = job.hold(8)
        job.start()
        job.workers[0].wait_line("global step: 1\\)")
        join = [*STILL, "--model=" + self.model(), "--data_dir=" + self.data(),
                "--ps_hosts=" + job.ps_hosts[0], "--join", "--learning_rate=0.01",
                "--progress=lines"]
        worker = harness.program("worker")
        join.remove("--train_steps=1")
        other = self.start("other", [worker, *join, "--freeze=head/weights"])
        self.assertRegex(other.wait_output(60, 1), "parameter [0-9] 'head/[a-z]+': rule .*frozen")
        joined = self.start("joined", [worker, *join])
        joined.wait_line("joined as worker 1 of 2")
        gate.open()
        joined.wait()
        job.finish()

    def test_checkpoint_of_another_job_read(self):
        """--init reads the final parameters of another job from its checkpoint folder, or from a
        manifest."""
        folder = self.path("checkpoints")
        job = self.job(n_ps=2, n_workers=1, model=self.model(),
                       flags=[*STILL, "--learning_rate=0.1", "--train_steps=6"])
        job.start(["--checkpoint_dir=" + folder])
        digest = job.finish()[0]["parameters_sha256"]
        manifest, = [f for f in os.listdir(folder) if f.endswith("-6.json")]
        for path in (folder, os.path.join(folder, manifest)):
            summary, _, _ = self.alone("--init=" + path, STAT)
            self.assertEqual(summary["parameters_sha256"], digest)
        part = next(f for f in os.listdir(folder) if f.endswith("-1-of-2.safetensors"))
        _, _, said = self.alone("--init=" + os.path.join(folder, part), status=1)
        self.assertIn("one server's file of a checkpoint", said)

    def test_other_normalisation_warned(self):
        """One line appears if the file's parameters were trained with another normalisation."""
        plain, normal = self.path("plain"), self.path("normal")
        for path, flags in ((plain, []), (normal, ["--mean=0.25", "--std=0.5"])):
            self.alone(*flags)
            os.rename(self.path("export"), path)
        for path, flags, words in (
                (plain, [], None), (normal, ["--mean=0.25", "--std=0.5"], None),
                (normal, [], "mean 0.25 and standard deviation 0.5, but this job normalises "
                 "with mean none and standard deviation none."),
                (normal, ["--mean=0.125"],
                 "mean 0.25 and standard deviation 0.5, but this job normalises "
                 "with mean 0.125 and standard deviation 1."),
                (plain, ["--mean=0.5"],
                 "mean none and standard deviation none, but this job normalises "
                 "with mean 0.5 and standard deviation 1.")):
            _, _, said = self.alone("--init=" + path, STAT, *flags)
            lines = [line for line in said.splitlines() if " was trained on samples of " in line]
            self.assertEqual(len(lines), words is not None, said)
            if words:
                self.assertIn("--init=%s: the file was trained on samples of %s" % (path, words),
                              lines[0])
        state = self.state_file(weights.small_state(7))  # a file without that information
        self.assertNotIn("was trained on", self.alone("--init=" + state, STAT, "--mean=0.5")[2])

    def test_mismatched_init_refused(self):
        state = weights.small_state(7)
        state["other.weight"] = state.pop("head.weight")
        state["features.0.bias"] = ("F32", (1,), [1.0])
        _, _, said = self.alone("--init=" + self.state_file(state), status=1)
        self.assertIn("missing: 'head/weights' (10x75: no tensor is called 'head/weights' or "
                      "'head.weight')", said)
        self.assertIn("other shape: 'features.0/biases' is 3, but tensor 'features.0.bias' is 1",
                      said)
        self.assertIn("unexpected: tensor 'other.weight' (10x75)", said)
        self.assertIn("the file lacks 1 of 8 parameters, and 1 have another shape", said)
        for flags, status, words in (
                (["--init=" + self.path("none")], 1, "cannot be opened"),
                (["--init_map=" + self.path("none")], 2, "--init=FILE"),
                (["--init=" + self.dir()], 1, "there is no checkpoint"),
                (["--freeze=nothing*"], 1, "no parameter has a name like 'nothing*'"),
                (["--freeze=*"], 1, "leaves nothing to train")):
            _, _, said = self.alone(*flags, status=status)
            self.assertIn(words, said)


harness.main(__name__)
