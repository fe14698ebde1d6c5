"""What `weir report --rerun` changes in a Keras job that it runs again. Python imports this before the job; the file `change`
beside it names the change, and where that was made the file `made` is left, so that a run without effect shows nothing."""
import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))


def made():
    with open(os.path.join(here, "made"), "a"):
        pass


def wrap(model, name, change):
    """Changes the arguments of a method where it is defined, so that classes that compare it see one method."""
    owner = next((kind for kind in model.__mro__ if name in vars(kind)), None)
    if owner is None:
        return
    plain = vars(owner)[name]
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def changed(*arguments, **named):
        bound = signature.bind(*arguments, **named)
        if change(bound.arguments):
            made()
        return plain(*bound.args, **bound.kwargs)

    setattr(owner, name, changed)


def without_xla(keras, _):
    def change(arguments):
        arguments["jit_compile"] = False
        return True

    wrap(keras.Model, "compile", change)


def smaller_batch(keras, parts):
    def change(arguments):
        data = arguments.get("x")
        if hasattr(data, "element_spec") and hasattr(data, "unbatch"):
            import tensorflow as tf

            first = next(iter(data.take(1)), None)
            whole = tf.nest.flatten(first)[0].shape[:1] if first is not None else ()
            if not whole or not whole[0] or whole[0] < parts:
                return False
            arguments["x"] = data.unbatch().batch(whole[0] // parts)
        elif hasattr(data, "shape") or isinstance(data, (list, tuple, dict)):
            whole = arguments.get("batch_size") or 32
            if whole < parts:
                return False
            arguments["batch_size"] = whole // parts
        else:
            return False
        return True

    wrap(keras.Model, "fit", change)


def mixed_precision(keras, _):
    keras.mixed_precision.set_global_policy("mixed_float16")
    made()


def checkpoint(keras, _):
    import tensorflow as tf
    from keras.src.backend.common import remat

    # Keras' own passes words on to tf.recompute_grad, which takes none in a graph.
    def recomputed(function):
        return lambda *tensors, **words: tf.recompute_grad(lambda *tensors: function(*tensors, **words))(*tensors)

    remat.remat = recomputed
    # Of what is small, computing it again saves nothing; the model as a whole has a small result, too.
    keras.RematScope(mode="larger_than").__enter__()
    made()


CHANGES = {change.__name__: change for change in (without_xla, smaller_batch, mixed_precision, checkpoint)}


class Finder(importlib.abc.MetaPathFinder):
    """Makes the change when Keras has been imported."""

    def find_spec(self, name, path, target=None):
        if name != "keras":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            # Who only asks whether there is a Keras finds it, too, and does not load it.
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
            try:
                with open(os.path.join(here, "change")) as file:
                    change, _, value = file.read().strip().partition(" ")
                CHANGES[change](module, int(value or 0))
            except Exception:  # The job goes on as it is, and nothing is claimed.
                pass

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
# The environment's own file of this name, if it has one.
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
own = sys.modules.pop(__name__, None)
try:
    import sitecustomize  # noqa: F401
except ImportError:
    sys.modules[__name__] = own
