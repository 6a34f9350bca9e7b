"""The way of an exchange in which the program has an optimizer of PyTorch, as before, and the
servers make its steps: its class, options and groups become settings of the job."""
from __future__ import annotations

import weakref
from typing import Any, Callable, Optional, Sequence

import torch

from .._library import Invalid
from ..member import Step
from ._schedule import Schedule
from ._slots import Slot
from ._ways import Named, Way

# Options of torch.optim that the servers do not have.
LACKING = ("amsgrad", "maximize", "dampening", "centered", "lr_decay", "initial_accumulator_value",
           "capturable", "differentiable")
# Options that the servers have once, for all parameters: (option, settings).
ONCE = {"momentum": ("momentum",), "nesterov": (), "betas": ("beta1", "beta2"),
        "alpha": ("decay",), "eps": ("epsilon",), "decoupled_weight_decay": ()}
NAMES: dict[str, Callable[[dict[str, Any]], str]] = {
    "SGD": lambda o: "nesterov" if o["nesterov"] else "momentum" if o["momentum"] else "sgd",
    "Adam": lambda o: "adamw" if o.get("decoupled_weight_decay") else "adam",
    "AdamW": lambda _: "adamw", "RMSprop": lambda _: "rmsprop", "Adagrad": lambda _: "adagrad"}


def base_rate(group: dict[str, Any]) -> float:
    """Returns the group's learning rate without the factor of a scheduler."""
    return float(group.get("initial_lr", group["lr"]))


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: group[name] for name in ONCE if name in group}


def _kind(optimizers: Sequence[torch.optim.Optimizer]) -> str:
    """Returns the name of the optimizers' class. Raises Invalid if the servers do not have it, or
    if the optimizers differ."""
    for kind in map(type, optimizers):
        if getattr(torch.optim, kind.__name__, None) is not kind or kind.__name__ not in NAMES:
            raise Invalid("the servers have no optimizer %s; they have torch.optim.%s. With "
                          "local_steps=N each member makes N steps by any optimizer, and the "
                          "servers average the changes" % (kind.__name__, ", ".join(NAMES)))
        if kind is not type(optimizers[0]):
            raise Invalid("the optimizers are of different classes, %s and %s; the servers have "
                          "one optimizer for all parameters. Make an exchange with servers of its "
                          "own for each network" % (type(optimizers[0]).__name__, kind.__name__))
    return type(optimizers[0]).__name__


def job_settings(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    """Returns the settings of a job whose servers make the steps of these optimizers. Raises
    Invalid if the servers cannot."""
    kind = _kind(optimizers)
    groups = [g for o in optimizers for g in o.param_groups]
    first = groups[0]
    for group in groups:
        for name in LACKING:
            if group.get(name):
                raise Invalid("the servers' %s has no option %s=%s" % (kind, name, group[name]))
        for name, value in _options(group).items():
            if value != first[name]:
                raise Invalid("the optimizer%s groups have different %s (%s and %s); except for lr "
                              "and weight_decay, the servers use one value for all parameters" % (
                                  "'s" if len(optimizers) == 1 else "s'", name, first[name],
                                  value))
    made = {"optimizer": NAMES[kind](first), "learning_rate": max(map(base_rate, groups)),
            "weight_decay": max(float(g["weight_decay"]) for g in groups)}
    if made["learning_rate"] <= 0:
        raise Invalid("the optimizer's learning rate is 0; set one above 0 (for a warm-up: before "
                      "the scheduler is made)")
    for name, value in _options(first).items():
        if name == "momentum" and made["optimizer"] == "sgd":
            continue
        values = value if isinstance(value, (tuple, list)) else (value,)
        made.update(zip(ONCE[name], map(float, values)))
    return made


class OwnOptimizer(Way):
    """An optimizer's step() is the end of a step: it pushes the gradients in .grad, and when it
    returns, the parameters have the next step's values. If there are several optimizers, a step is
    that of one of them, and the other parameters have no gradient."""
    may_scale = True

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], scheduler: Any,
                 scheduler_steps: int) -> None:
        self.optimizers = list(optimizers)
        self._settings = job_settings(self.optimizers)
        for optimizer in self.optimizers:
            # A GradScaler then unscales the gradients before step() instead of within it.
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
        self._bases = [base_rate(g) for g in self._groups()]
        self._expected: list[dict[str, Any]] = []
        if len(self.optimizers) > 1 and hasattr(scheduler, "step"):
            raise Invalid("with several optimizers scheduler= must be a function of the step's "
                          "number that returns a factor, which is for all of them")
        self.schedule = None if scheduler is None else Schedule(
            scheduler, self.optimizers[0], self._bases, scheduler_steps)
        self._stepped: Any = None  # the optimizer whose step() was called in this step
        self._turn: set[int] = set()  # ids of its parameters
        self._hidden: list[tuple[torch.Tensor, Any]] = []  # gradients during step()

    def _groups(self) -> list[dict[str, Any]]:
        return [g for o in self.optimizers for g in o.param_groups]

    def settings(self) -> dict[str, Any]:
        return self._settings

    def check_tables(self) -> None:
        if len(self.optimizers) > 1:
            raise Invalid("several optimizers do not fit tables (weir.torch.Embedding, "
                          "EmbeddingBag), whose rows belong to none of them; pass one optimizer "
                          "with groups")

    def has(self, optimizer: Any) -> bool:
        return any(optimizer is o for o in self.optimizers)

    def may_step(self, optimizer: torch.optim.Optimizer) -> bool:
        return self.has(optimizer)

    def may_schedule(self, scheduler: Any) -> bool:
        groups = scheduler.optimizer.param_groups
        return self.schedule is not None and any(
            groups is o.param_groups for o in self.optimizers)

    def clips_itself(self, step: Optional[Step]) -> bool:
        return step is not None and not step.generation  # without servers there is no mean

    def factors(self, p: torch.Tensor) -> tuple[float, float]:
        """Returns the factors of the job's learning rate and weight decay for a parameter."""
        for group, rate in zip(self._groups(), self._bases):
            if any(p is q for q in group["params"]):
                decay = self._settings["weight_decay"]
                return (rate / self._settings["learning_rate"],
                        float(group["weight_decay"]) / decay if decay else 1.0)
        return 1.0, 1.0

    def parameters(self, model: torch.nn.Module) -> Named:
        listed = [id(p) for g in self._groups() for p in g["params"]]
        mine = set(listed)
        found = [(name, p) for name, p in model.named_parameters() if id(p) in mine]
        if len(found) < len(mine):
            raise Invalid("the optimizer has %d parameters that the model does not have; pass the "
                          "module that holds all of them" % (len(mine) - len(found)))
        for name, p in found:
            if listed.count(id(p)) > 1:
                raise Invalid("parameter '%s' is in two of the optimizers; the servers have one "
                              "state of it" % name)
        return found

    def attach(self, exchange: Any) -> list[Any]:
        of = weakref.ref(exchange)

        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            return self._before(of(), optimizer, args, kwargs) if of() is not None else None

        def after(*_: Any) -> None:
            for p, gradient in self._hidden:
                p.grad = gradient
            self._hidden.clear()
        return [hook for o in self.optimizers for hook in (o.register_step_pre_hook(before),
                                                           o.register_step_post_hook(after))]

    def _before(self, exchange: Any, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """Ends a step instead of the optimizer's own step(), which finds no gradient after it."""
        if exchange.step is None:
            raise Invalid("optimizer.step() outside of a step; iterate over the exchange")
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            args, kwargs = args[:1], {**kwargs, "closure": lambda: loss}
        self.end(exchange, optimizer)
        self._hidden += [(p, p.grad) for g in optimizer.param_groups for p in g["params"]]
        for p, _ in self._hidden:
            p.grad = None
        return args, kwargs

    def end(self, exchange: Any, optimizer: Any) -> None:
        """Pushes the gradients of this optimizer, and waits for the values of the next step."""
        if self._stepped is not None:
            raise Invalid("optimizer.step() was called twice in step %d%s; for several optimizer "
                          "steps iterate over the exchange as often" % (
                              exchange.step.step, "" if self._stepped is optimizer else
                              ", of two optimizers"))
        self._check_groups(exchange.step)
        self._stepped = optimizer
        self._turn = {id(p) for g in optimizer.param_groups for p in g["params"]}
        if exchange.counts:
            exchange._finish()
            exchange._need(exchange.slots)

    def _check_groups(self, step: Step) -> None:
        """Raises Invalid if the program has changed options of the optimizer."""
        if len(self._groups()) != len(self._expected):
            raise Invalid("a group was added to the optimizer after the first step, and the "
                          "servers do not have it; add it before the exchange")
        for group, expected in zip(self._groups(), self._expected):
            for name, value in expected.items():
                if group[name] == value:
                    continue
                if name == "lr":
                    raise Invalid("the learning rate of the optimizer is %g in step %d, but the "
                                  "servers have %g; pass the scheduler, or a function of the "
                                  "step's number that returns a factor: Exchange(..., "
                                  "scheduler=scheduler)" % (group[name], step.step, value))
                raise Invalid("the program has changed the optimizer's %s from %s to %s, but the "
                              "servers keep it; set it before the exchange" % (
                                  name, value, group[name]))
        if self.schedule:
            self.schedule.check_pace()

    def gradient(self, p: torch.Tensor) -> Optional[torch.Tensor]:
        return p.grad if id(p) in self._turn else None

    def begin_step(self, exchange: Any, step: Step) -> Step:
        if len(self.optimizers) > 1 and step.n_regions > 0:
            raise Invalid("several optimizers do not fit regions, whose servers need a gradient of "
                          "every parameter; make an exchange with servers of its own for each "
                          "network")
        self._stepped = None
        if self.schedule:
            factor = self.schedule.factor(step.step, step.train_steps)
            exchange.member.step_rate(factor)
            for group, base in zip(self._groups(), self._bases):
                if isinstance(group["lr"], torch.Tensor):
                    group["lr"].fill_(base * factor)
                else:
                    group["lr"] = base * factor
        if self.schedule or not self._expected:
            self._expected = [{**_options(g), "weight_decay": g["weight_decay"],
                               "lr": float(g["lr"])} for g in self._groups()]
        return step

    def end_step(self, exchange: Any) -> Optional[Step]:
        step, counts = exchange.step, exchange.counts
        if self._stepped is None and counts:
            if not exchange._skipped and not self._overflowed(exchange.slots):
                raise Invalid("optimizer.step() was not called in step %d; call it once in each "
                              "step, or exchange.skip() if the step must not count" % step.step)
            exchange._skipped = True
            self.end(exchange, self.optimizers[0])
        if self.schedule:
            self.schedule.made(counts and not exchange._skipped)
        return None

    def _overflowed(self, slots: list[Slot]) -> bool:
        """Returns whether some gradient is not finite, so that a GradScaler has left out step()."""
        grads = [s.tensor.grad for s in slots if not s.average and s.tensor.grad is not None]
        return any(not bool(torch.isfinite(g.to_dense()).all()) for g in grads)

    def scaler_skipped(self, exchange: Any) -> None:
        """Ends a step whose gradients a GradScaler found to be infinite."""
        if exchange.step is not None and self._stepped is None:
            exchange._skipped = True
            self.end(exchange, self.optimizers[0])
