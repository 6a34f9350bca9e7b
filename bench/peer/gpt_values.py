"""First values of the parameters: normal numbers, which do not compress, as trained ones."""
import numpy
import shapes


def array(i, shape):
    """Returns the values of parameter i, the same ones in each process."""
    made = numpy.random.default_rng(i).standard_normal(shape, numpy.float32)
    made *= numpy.float32(0.02)
    return made


def arrays(size):
    """Yields (name, array of float32) of each parameter."""
    for i, (name, shape) in enumerate(shapes.shapes(size)):
        yield name, array(i, shape)


def first():
    """Returns the first element of the first parameter, which programs check."""
    return float(array(0, (1,))[0])
