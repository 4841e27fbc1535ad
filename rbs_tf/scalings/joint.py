"""Whitening across heads, which the paper leaves to future work ("Correlations across multiple heads")."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from rbs_tf.configurable import configurable
from rbs_tf.moments import ReturnMoments
from rbs_tf.return_scaling import batch_sigma
from rbs_tf.scalings.joint_moments import JointMoments
from rbs_tf.scalings.return_based import ReturnBasedScaling
from rbs_tf.scalings.scaling import ErrorContext


@configurable("joint", module="scalings")
class JointScaling(ReturnBasedScaling):
    """Experimental: TD errors of all heads whitened together, P^(-1/2) D^(-1) delta in every step.

    D = diag(max(sigma, sigma_v, sigma_batch)) as in return-based scaling, and P is the correlation matrix: 1 on the
    diagonal and C_ij / (D_i D_j) off it, C = Cov[R] + Cov[gamma] E[G G^T] over pairs of heads, whose diagonal is
    sigma^2. A D above sigma weakens correlations and leaves P positive semi-definite.

    The loss becomes 1/2 delta^T (D P D)^(-1) delta, the same for every root of P; the symmetric one treats heads
    alike. Uncorrelated heads are scaled as by return-based scaling, to the last bit.

    Measured with the paper's ten heads on 8,702 steps of random play in Atari's Space Invaders
    (benchmarks/joint_correlations.py): P has the eigenvalues 6.5, 1.9 and 1.4, and the other seven below 0.1. Whitening
    therefore acts on what little heads differ in: for 5-step errors of values of zero, 38% of the heads' gradients
    point against their own error (44% at bounds of 0.1 and less).

    Args:
      num_heads: H.
      sigma_v: the floor until the first batch has been seen, and for a head whose values do not vary at all.
      min_eigenvalue: lower bound of P's eigenvalues, in (0, 1]. Heads that never differ make P singular; no
        combination of heads is amplified by more than 1 / sqrt(min_eigenvalue). At 0.3 gradients of the errors above
        are 1.5 times as large as in return-based scaling, at 0.01 they are 37 times as large; at 1 nothing is
        amplified, and what heads share is still divided by its eigenvalue's root.

    Raises:
      ValueError: a min_eigenvalue outside (0, 1].
    """

    def __init__(self, num_heads: int, sigma_v: float = 1e-2, min_eigenvalue: float = 0.3):
        super().__init__(num_heads, sigma_v=sigma_v)
        self.needs = {"joint": JointMoments}
        if not 0.0 < min_eigenvalue <= 1.0:
            raise ValueError(
                f"min_eigenvalue must lie in (0, 1], got {min_eigenvalue}. A correlation matrix of equal heads has "
                "eigenvalues of 0, and whitening divides by their roots; try 0.3"
            )
        self._min_eigenvalue = min_eigenvalue
        empty = JointMoments.empty(num_heads)
        self.joint = tf.Variable(empty.to_array(), trainable=False, name="joint")
        self.covariance = tf.Variable(empty.sigma_squared, trainable=False, name="covariance")

    def observe(self, moments: ReturnMoments, *, joint: JointMoments | None = None, **others: Any) -> None:
        """Takes in statistics of new steps and finished episodes, per head and over pairs of heads. Eager.

        Raises:
          ValueError: no joint moments, or moments of another number of heads.
        """
        if joint is None:
            raise ValueError(
                "scalings.joint needs the moments of pairs of heads beside those of each; "
                "call observe(moments, joint=rbs_tf.scalings.joint_moments.JointMoments.from_steps(rewards, discounts))"
            )
        merged = JointMoments.merge(JointMoments.from_array(self.joint.numpy()), joint)
        super().observe(moments)
        self.joint.assign(merged.to_array())
        self.covariance.assign(merged.sigma_squared)

    def errors(self, targets: tf.Tensor, outputs: tf.Tensor, context: ErrorContext) -> tf.Tensor:
        floor = batch_sigma(context.rewards, context.discounts, context.mask)
        errors = self.layer(targets - outputs, batch_sigma=floor)
        # On CPUs XLA's eigh stops at about 1e-6: as good as errors of float32 are.
        eigenvalues, vectors = tf.linalg.eigh(self._correlations(floor))
        scales = tf.sqrt(tf.maximum(eigenvalues, self._min_eigenvalue))
        root = tf.stop_gradient(tf.matmul(vectors / scales, vectors, transpose_b=True))
        # In float64: by default, TensorFlow lets GPUs multiply float32 matrices with mantissas of 10 bits (TF32).
        return tf.cast(tf.tensordot(tf.cast(errors, tf.float64), root, axes=1), errors.dtype)

    def summaries(self) -> dict[str, tf.Tensor]:
        correlations = self._correlations(tf.zeros(self.num_heads, tf.float64))
        others = tf.linalg.set_diag(tf.abs(correlations), tf.zeros(self.num_heads, tf.float64))
        return {
            **super().summaries(),
            "largest_correlation": tf.reduce_max(others, axis=0),
            "eigenvalue": tf.linalg.eigvalsh(correlations),
        }

    def _correlations(self, floor: tf.Tensor) -> tf.Tensor:
        """P under a lower bound of D, float64 [H] -> [H, H]."""
        scale = tf.maximum(tf.maximum(self.layer.sigma, self.layer.sigma_v), floor)
        correlations = self.covariance / (scale[:, None] * scale)
        return tf.linalg.set_diag(correlations, tf.ones_like(scale))
