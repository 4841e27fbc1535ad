"""Pop-Art in NumPy and float64."""

import numpy as np

from tests.rbs_tf.scalings.episodes import ROWS, STATES, H, LastLayers


class Units:
    """Two networks' units on one linear layer of weights; a scale of 0 is a head that has none yet."""

    def __init__(self, scale=0.0):
        layers = LastLayers()
        self.weights, self.bias = (x.numpy().astype(np.float64) for x in (layers.weights, layers.bias))
        self.scale, self.target_scale = np.full((2, H), scale)
        self.shift, self.target_shift = np.zeros((2, H))
        self.largest = np.zeros(H)  # of all numbers that the layer's values have been written in

    def move_to(self, scale, shift):
        """The first units are taken over by both networks; later ones change the layer instead of its values."""
        for head in range(H):
            if self.scale[head] == 0.0:
                self.target_scale[head], self.target_shift[head] = scale[head], shift[head]
            else:
                ratio = self.scale[head] / scale[head]
                self.weights[:, head] *= ratio
                self.bias[head] = ratio * self.bias[head] + (self.shift[head] - shift[head]) / scale[head]
            self.scale[head], self.shift[head] = scale[head], shift[head]
        values = np.abs(self.scale * self.outputs() + self.shift).max(axis=(0, 1))
        self.largest = np.maximum.reduce([self.largest, self.scale, np.abs(self.shift), values])

    def replace_target(self):
        self.target_scale, self.target_shift = self.scale.copy(), self.shift.copy()

    def outputs(self):
        return (STATES @ self.weights + self.bias).reshape(ROWS)

    def assert_same(self, scaling, layers):
        """But that units trail by up to 1e-4, and float32 holds 1e-7 of the larger of two numbers it adds."""
        for units, scale, shift in (
            (scaling.online, self.scale, self.shift),
            (scaling.target, self.target_scale, self.target_shift),
        ):
            np.testing.assert_allclose(units.scale, scale, rtol=1.1e-4)
            values = scaling.values(layers(), target=units is scaling.target)
            np.testing.assert_array_equal(values, units.values(layers()))
            assert (np.abs(units.shift - shift) <= 1.1e-4 * scale + 2e-7 * self.largest).all()
        exact = self.scale * self.outputs() + self.shift
        assert (np.abs(scaling.values(layers()) - exact) <= 1e-4 * self.largest).all()


class PopArt(Units):
    """Moments of targets; from 0 and 1 on, or from the first targets whose root mean square is not 0."""

    def __init__(self, step_size=1e-3, min_scale=1e-3, max_scale=1e3, start_at_first_targets=False):
        super().__init__(0.0 if start_at_first_targets else 1.0)
        self._options = step_size, min_scale, np.inf if start_at_first_targets else max_scale
        self.mean, self.mean_square, self.first = np.zeros(H), *np.full((2, H), self.scale)

    def after(self, targets, mask):
        """Mean, mean square, first and scale once this batch has been seen."""
        (step_size, min_scale, max_scale), moments = self._options, []
        counted = targets.astype(np.float64)[np.asarray(mask, bool)]
        for head in range(H):
            mean, mean_square, first = self.mean[head], self.mean_square[head], self.first[head]
            if len(counted):
                x, step = counted[:, head], step_size if first > 0 else 1.0
                mean += step * (x.mean() - mean)
                mean_square += step * (np.mean(x * x) - mean_square)
            first = first or np.sqrt(mean_square)
            scale = np.clip(np.sqrt(max(mean_square - mean**2, 0.0)), min_scale * first, max_scale)
            moments.append((mean, mean_square, first, scale))
        return np.array(moments).T

    def errors(self, targets, outputs, mask):
        mean, _, _, scale = self.after(targets, mask)
        scale = np.where(scale == 0, 1.0, scale)
        known = self.scale > 0
        values = np.where(known, self.scale, scale) * outputs + np.where(known, self.shift, mean)
        return (targets - values) / scale

    def update(self, targets, mask):
        self.mean, self.mean_square, self.first, scale = self.after(targets, mask)
        self.move_to(scale, self.mean)
