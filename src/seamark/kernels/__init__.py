"""Compiled loops. Nothing else in the package knows about numba; each kernel has a NumPy twin in the tests.

Contract: contexts X are a C-ordered float64 array (n, d), with weights (actions, features), or a `Csr` of rows,
with weights (features, actions); `rows[t]` is the context of round t. Randomness comes in as uniforms, so a kernel
holds no generator. Kernels change their state arrays (weights) in place and write results to the `out_*` arrays.
Dense inner loops may reassociate sums: same bits on one machine, a tolerance across machines. Sparse ones are strict.
"""
